//! The committed header and the library agree: what C sees of sizes, offsets and numbers is what Rust has.

mod library;

use exs::*;
use library::LIBRARY;
use sidecore_clibs::{constants, members};

fn structures() -> String {
    members!(exs_signal_t: exs_sig_state exs_sig_number)
        + &members!(exs_iovec_t: iov_base iov_len iov_mhandle)
        + &members!(exs_msghdr_t: msg_name msg_namelen msg_iov msg_iovlen msg_control msg_controllen msg_flags)
        + &members!(exs_fdvec_t: fdv_fd fdv_offset fdv_len)
        + &members!(exs_xferfile_t: exs_xf_type exs_xf_union)
        + &members!(exs_acceptaddr_t: exs_acc_addr exs_acc_addrlen)
        + &members!(exs_pollfd_t: fd events revents)
        + &members!(exs_evt_xfer_t: exs_evt_buffer exs_evt_length exs_evt_mhandle)
        + &members!(exs_evt_xfermsg_t: exs_evt_message exs_evt_length)
        + &members!(exs_evt_xferfile_t: exs_evt_pieces exs_evt_length)
        + &members!(exs_evt_accept_t: exs_evt_newsocket exs_evt_address)
        + &members!(exs_evt_poll_t: exs_evt_fds exs_evt_count)
        + &members!(exs_event_t: exs_evt_type exs_evt_errno exs_evt_socket exs_evt_ahandle exs_evt_union)
        + &members!(exs_qhandle_t:)
        + &members!(exs_mhandle_t:)
        + &members!(exs_ahandle_t:)
}

#[test]
fn header_and_library_agree() {
    let numbers = constants!(EXS_VERSION EXS_VERSION1 EXS_QHANDLE_INVALID EXS_MHANDLE_INVALID EXS_MHANDLE_UNREGISTERED EXS_MRF_SHARED
        EXS_QATTR_DEPTH EXS_QATTR_SIGNAL EXS_QATTR_EVENTS EXS_SIG_DISABLE EXS_SIG_ENABLE EXS_POLLIN EXS_POLLOUT EXS_IOVEC EXS_FDVEC
        EXS_SHUT_WR EXS_EVT_POLL EXS_EVT_CONNECT EXS_EVT_ACCEPT EXS_EVT_SEND EXS_EVT_RECV EXS_EVT_SENDMSG EXS_EVT_RECVMSG
        EXS_EVT_SENDFILE EXS_EVT_SHUTDOWN EXS_EVT_CLOSE EXS_EVTVEC_MAX EXS_IOV_MAX EXS_CAF_FILDES EXS_CAF_AHANDLE);
    let header = LIBRARY.header_text();
    // A number that the header has and this test does not would not be checked.
    let defined = header
        .lines()
        .filter(|line| line.starts_with("#define EXS_") && line.split(' ').count() > 2);
    assert_eq!(defined.count(), numbers.lines().count());

    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("agree.c");
    // What has the numbers and the layout of the system's.
    let others = "_Static_assert(EXS_POLLIN == POLLIN && EXS_POLLOUT == POLLOUT && EXS_SHUT_WR == SHUT_WR, \"\");\n\
                  _Static_assert(sizeof(exs_pollfd_t) == sizeof(struct pollfd), \"\");\n";
    let text = format!(
        "#include <sys/exs.h>\n#include <poll.h>\n{}{numbers}{others}",
        structures()
    );
    std::fs::write(&source, text).unwrap();
    LIBRARY.compile(&source, &folder.path().join("agree.o"), &["-c"]);
}

#[test]
fn the_header_is_cpp_as_well() {
    let text = "#include <sys/exs.h>\nint main() { return exs_init(EXS_VERSION); }\n";
    LIBRARY.compile_as_cpp(text, &LIBRARY.path("include"));
}

#[test]
fn the_shared_library_exports_what_the_header_declares_and_nothing_else() {
    let declared = LIBRARY.declared();
    assert_eq!(declared.len(), 19);
    assert_eq!(LIBRARY.exported(), declared);
}

#[test]
fn the_shared_library_has_its_name_and_version() {
    LIBRARY.check_name_and_flags();
}
