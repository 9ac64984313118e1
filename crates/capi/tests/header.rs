//! The committed header and the library agree: what C sees of sizes, offsets and numbers is what Rust has.

mod library;

use library::LIBRARY;
use sidecore_clibs::{constants, members, numbers};
use sidecore_dusi::*;

macro_rules! variants {
    ($kind:ident: $($name:ident)*) => { numbers!($($kind::$name => $name)*) };
}

fn statuses() -> String {
    variants!(Dusi_Status: DUSI_OK DUSI_INVALID DUSI_BAD_HANDLE DUSI_BAD_EXTENT DUSI_HANDLE_IN_USE DUSI_WRONG_STATE DUSI_ADDRESS_IN_USE
        DUSI_ADDRESS_NOT_AVAILABLE DUSI_NOT_PERMITTED DUSI_NO_RESOURCES DUSI_QUEUE_FULL DUSI_CONNECTION_REFUSED DUSI_CONNECTION_RESET
        DUSI_TIMED_OUT DUSI_UNREACHABLE DUSI_ABORTED DUSI_CANCELLED DUSI_NOT_SUPPORTED DUSI_MESSAGE_TOO_LARGE DUSI_CONDEMNED
        DUSI_BAD_ARGUMENT DUSI_EMPTY DUSI_NOT_EMPTY DUSI_TIMEOUT DUSI_BUSY DUSI_DOORBELL_FULL DUSI_EXHAUSTED DUSI_DISCONNECTED
        DUSI_NO_ENGINE DUSI_VERSION_MISMATCH DUSI_PROTOCOL DUSI_FORKED DUSI_SYSTEM DUSI_INTERNAL)
}

fn enumerations() -> String {
    variants!(Dusi_Dti_Type: DUSI_STREAM DUSI_DATAGRAM)
        + &variants!(Dusi_Event_Kind: DUSI_EVENT_COMPLETION DUSI_EVENT_RECEIVED DUSI_EVENT_RECEIVED_INTO DUSI_EVENT_ACCEPTED
            DUSI_EVENT_CONNECTED DUSI_EVENT_SENT DUSI_EVENT_CLOSED DUSI_EVENT_DATAGRAM DUSI_EVENT_REGISTERED DUSI_EVENT_INCOMING
            DUSI_EVENT_ERROR DUSI_EVENT_WRITABLE DUSI_EVENT_URGENT DUSI_EVENT_ERROR_REPORT)
        + &variants!(Dusi_Operation: DUSI_OP_NOP DUSI_OP_CREATE_STREAM DUSI_OP_CREATE_DATAGRAM DUSI_OP_BIND DUSI_OP_LISTEN
            DUSI_OP_ACCEPT DUSI_OP_CONNECT DUSI_OP_SEND DUSI_OP_RECEIVE DUSI_OP_RETURN_CHUNKS DUSI_OP_SHUTDOWN DUSI_OP_CLOSE
            DUSI_OP_ABORT DUSI_OP_CANCEL DUSI_OP_SET_OPTION DUSI_OP_GET_OPTION DUSI_OP_DEREGISTER)
        + &variants!(Dusi_Option: DUSI_OPT_NODELAY DUSI_OPT_CORK DUSI_OPT_KEEPALIVE DUSI_OPT_KEEPALIVE_IDLE
            DUSI_OPT_KEEPALIVE_INTERVAL DUSI_OPT_KEEPALIVE_PROBES DUSI_OPT_USER_TIMEOUT DUSI_OPT_RECEIVE_BUFFER DUSI_OPT_CONGESTION
            DUSI_OPT_LINGER DUSI_OPT_QUICKACK DUSI_OPT_LOCAL_ADDRESS DUSI_OPT_PEER_ADDRESS DUSI_OPT_NOTSENT_LOWAT
            DUSI_OPT_MAX_SEGMENT DUSI_OPT_SYN_RETRIES DUSI_OPT_WINDOW_CLAMP DUSI_OPT_FIN_WAIT2 DUSI_OPT_DEFER_ACCEPT
            DUSI_OPT_TRAFFIC_CLASS DUSI_OPT_HOP_LIMIT DUSI_OPT_V6ONLY DUSI_OPT_ECN DUSI_OPT_FAST_OPEN DUSI_OPT_MAX_PACING_RATE
            DUSI_OPT_URGENT_MARK DUSI_OPT_MULTICAST_HOPS DUSI_OPT_MULTICAST_LOOP DUSI_OPT_MULTICAST_SOURCE DUSI_OPT_REUSE_ADDRESS
            DUSI_OPT_RECEIVE_ERRORS DUSI_OPT_MTU_DISCOVERY DUSI_OPT_PATH_MTU)
}

fn structures() -> String {
    members!(Dusi_Ual_Config: size flags doorbell_depth dtis evqs evq_depth pool_bytes spin reserved)
        + &members!(Dusi_Ual_Info: doorbell_depth dtis evqs evq_depth pool_bytes epoch)
        + &members!(Dusi_Buffer: region data length)
        + &members!(Dusi_Event: kind status operation flags dti cookie chunk data length position value address)
        + &members!(Dusi_Status:)
        + &members!(Dusi_Ual:)
        + &members!(Dusi_Evq:)
        + &members!(Dusi_Dti:)
        + &members!(Dusi_Region:)
        + &members!(Dusi_Chunk:)
}

#[test]
fn header_and_library_agree() {
    let constants = constants!(DUSI_VERSION DUSI_NULL_HANDLE DUSI_NO_REGION DUSI_NO_CHUNK DUSI_COPY_MAX DUSI_VECTOR_MAX
        DUSI_MANUAL_FLUSH DUSI_POSTED_ONLY DUSI_NOTIFY DUSI_COPY DUSI_MORE DUSI_FIN DUSI_WAIT_ALL DUSI_URGENT DUSI_FAST_OPEN
        DUSI_SHUTDOWN_READ DUSI_SHUTDOWN_WRITE DUSI_HUGE_PAGES DUSI_SIGNAL_THREAD DUSI_EVENT_END DUSI_EVENT_FAILED);
    let asserts = statuses() + &enumerations() + &structures() + &constants;
    let header = LIBRARY.header_text();
    // A number that the header has and this test does not would not be checked.
    let defined = header.lines().filter(|line| {
        let line = line.trim_start();
        let constant = line.starts_with("#define DUSI_") && line.split(' ').count() > 2;
        constant || line.starts_with("DUSI_") && line.contains(" = ")
    });
    let asserted = asserts
        .lines()
        .filter(|line| line.starts_with("_Static_assert(DUSI_"));
    assert_eq!(defined.count(), asserted.count());

    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("agree.c");
    std::fs::write(&source, format!("#include <dusi.h>\n{asserts}")).unwrap();
    LIBRARY.compile(&source, &folder.path().join("agree.o"), &["-c"]);
}

#[test]
fn the_shared_library_exports_what_the_header_declares_and_nothing_else() {
    let declared = LIBRARY.declared();
    assert!(declared.len() > 40);
    assert_eq!(LIBRARY.exported(), declared);
}

#[test]
fn the_shared_library_has_its_name_and_version() {
    LIBRARY.check_name_and_flags();
}
