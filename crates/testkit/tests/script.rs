//! Scripts that are wrong: each is found out, at its line.

use sidecore_testkit::script::{self, Failure};

/// A listener and a complete handshake: seven lines.
const ACCEPTED: &str = "\
+0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
+0 bind(3, ..., ...) = 0
+0 listen(3, 5) = 0
+0 < S 0:0(0) win 30000 <mss 1000>
+0 > S. 0:0(0) ack 1 <...>
+.1 < . 1:1(0) ack 1 win 30000
+0 accept(3, ..., ...) = 4
";

fn run(rest: &str) -> Result<(), Failure> {
    let text = format!("{ACCEPTED}{rest}");
    script::run("test.pkt", &text, &|_| None)
}

/// The line at which a script fails, and what is said of it.
#[track_caller]
fn failure(rest: &str) -> (usize, String) {
    let failure = run(rest).expect_err("a script that is wrong");
    assert_eq!(&*failure.place.file, "test.pkt");
    (failure.place.line, failure.message)
}

#[track_caller]
fn fails(rest: &str, line: usize, says: &str) {
    let (at, message) = failure(rest);
    assert_eq!(at, line, "{message}");
    assert!(message.contains(says), "{message:?} does not say {says:?}");
}

#[test]
fn a_right_script_passes() {
    let script = "+0 write(4, ..., 10) = 10\n+0 > P. 1:11(10) ack 1\n";
    assert_eq!(run(script), Ok(()));
}

#[test]
fn another_packet_than_expected() {
    let write = "+0 write(4, ..., 10) = 10\n\n";
    let says = "expected: 0.100000 > P. 1:12(11) ack 1\n    actual: 0.100000 > P. 1:11(10) ack 1";
    fails(&format!("{write}+0 > P. 1:12(11) ack 1\n"), 10, says);
    for wrong in [
        "> . 1:11(10) ack 1",
        "> P. 2:12(10) ack 1",
        "> P. 1:11(10) ack 2",
        "> P. 1:11(10) ack 1 win 5",
        "> P. 1:11(10) ack 1 <nop,nop,TS val 1 ecr 1>",
        "> [ce] P. 1:11(10) ack 1",
        "> [ttl 3] P. 1:11(10) ack 1",
        "> 1 > 2 P. 1:11(10) ack 1",
        "> udp (10)",
    ] {
        fails(&format!("{write}+0 {wrong}\n"), 10, "another packet");
    }
}

#[test]
fn a_packet_at_another_time() {
    let write = "+0 write(4, ..., 10) = 10\n";
    fails(
        &format!("{write}+.1 > P. 1:11(10) ack 1\n"),
        9,
        "at another time",
    );
    let sent = format!("{write}+0 > P. 1:11(10) ack 1\n");
    assert_eq!(run(&format!("{sent}* > P. 1:11(10) ack 1\n")), Ok(()));
    fails(
        &format!("{sent}+.1 > P. 1:11(10) ack 1\n"),
        10,
        "no packet until",
    );
    fails(
        &format!("{sent}+1 > P. 1:11(10) ack 1\n"),
        10,
        "at another time",
    );
    fails(
        &format!("{sent}+.4~+.5 > P. 1:11(10) ack 1\n"),
        10,
        "at another time",
    );
    assert_eq!(run(&format!("{sent}+.2~+.5 > P. 1:11(10) ack 1\n")), Ok(()));
}

#[test]
fn a_packet_that_nobody_expected() {
    let write = "+0 write(4, ..., 10) = 10\n";
    fails(write, 8, "not expected: 0.100000 > P. 1:11(10) ack 1");
    fails(&format!("{write}+1 %{{ pass }}%\n"), 9, "not expected");
}

#[test]
fn calls_that_give_something_else() {
    fails("+0 write(4, ..., 10) = 9\n", 8, "write gives 10");
    fails("+0 read(4, ..., 10) = 0\n", 8, "read gives -1 EAGAIN");
    fails(
        "+0 read(5, ..., 10) = -1 EAGAIN\n",
        8,
        "read gives -1 EBADF",
    );
    fails(
        "+0 getsockopt(4, SOL_SOCKET, SO_ERROR, [7], [4]) = 0\n",
        8,
        "the option is 0",
    );
    fails("+0 sleep(4) = 0\n", 8, "sleep is not a call");
    let poll = "+0 poll([{fd=4, events=POLLIN|POLLOUT, revents=POLLIN}], 1, 0) = 1\n";
    fails(poll, 8, "revents 0x4");
}

#[test]
fn calls_that_block() {
    let data = "+.2 < P. 1:11(10) ack 1 win 30000\n+0~+.003 > . 1:1(0) ack 11\n";
    assert_eq!(
        run(&format!("+0...0.2 read(4, ..., 10) = 10\n{data}")),
        Ok(())
    );
    fails(
        &format!("+0...0.1 read(4, ..., 10) = 10\n{data}"),
        8,
        "still blocks",
    );
    fails(
        &format!("+0...0.3 read(4, ..., 10) = 10\n{data}"),
        8,
        "returned at",
    );
    fails("+0...1 read(4, ..., 10) = 10\n", 8, "still blocks");
    fails(
        "+0...1 read(4, ..., 10) = 10\n+0 close(4) = 0\n",
        9,
        "another call",
    );
}

#[test]
fn assertions() {
    assert_eq!(
        run("+0 %{ assert tcpi_snd_cwnd == 10, 'initial window' }%\n"),
        Ok(())
    );
    fails(
        "+0 %{ assert tcpi_snd_cwnd == 9 }%\n",
        8,
        "tcpi_snd_cwnd is 10",
    );
    fails(
        "+0 %{\nassert 1 == 1\nassert 1 > 1 }%\n",
        8,
        "1 > 1 does not hold",
    );
    fails(
        "+0 %{ assert tcpi_nonesuch == 9 }%\n",
        8,
        "neither a number nor a field",
    );
    fails("+0 %{ print(1) }%\n", 8, "only assertions");
}

#[test]
fn bytes_are_those_of_the_stream() {
    let read =
        "+.1 < P. 1:11(10) ack 1 win 30000\n+0 read(4, ..., 10) = 10\n+0~+.003 > . 1:1(0) ack 11\n";
    assert_eq!(run(read), Ok(()));
    // What stands at 1 is not what stands at 5: a handshake with another SYN shifts what is read.
    let shifted = ACCEPTED.replace("< S 0:0(0)", "< S 4:4(0)");
    let shifted = shifted.replace("> S. 0:0(0) ack 1", "> S. 0:0(0) ack 5");
    let shifted = shifted.replace("< . 1:1(0)", "< . 5:5(0)");
    let text = format!(
        "{shifted}+.1 < P. 5:15(10) ack 1 win 30000\n+0 read(4, ..., 10) = 10\n+0~+.003 > . 1:1(0) ack 15\n"
    );
    assert_eq!(script::run("test.pkt", &text, &|_| None), Ok(()));
}

#[test]
fn what_cannot_be_read() {
    fails(
        "`sysctl -w net.ipv4.tcp_sack=0`\n",
        8,
        "shell commands are not run here",
    );
    fails("+0 `sleep 1`\n", 8, "shell commands are not run here");
    fails("\n+0 < Q 1:1(0) ack 1 win 5\n", 9, "'Q' is no flag");
    fails("+0 < . 1:5(5) ack 1 win 5\n", 8, "1:5 are not 5 bytes");
    fails("+0 < . 1:1(0) win 5\n", 8, "without \"ack N\"");
    fails("+0 < . 1:1(0) ack 1\n", 8, "needs a window");
    fails("+0 < . 1:1(0) ack 1 win 5 <...>\n", 8, "needs its options");
    fails(
        "+0 < . 1:1(0) ack 1 win 5 <foo 3>\n",
        8,
        "\"foo\" is no option",
    );
    fails("* < . 1:1(0) ack 1 win 5\n", 8, "only outbound packets");
    fails("+2~+1 > . 1:1(0) ack 1\n", 8, "goes backwards");
    fails("+0 write(4, ..., 10 = 10\n", 8, "expected \",\"");
    let unknown = script::run("a.pkt", "\n--nonesuch=3\n+0 close(3) = 0\n", &|_| None);
    assert_eq!(unknown.expect_err("no such option").place.line, 2);
    let missing = script::run("a.pkt", "--include=b\n", &|_| None);
    assert!(missing.expect_err("no such file").message.contains("\"b\""));
}

#[test]
fn failures_in_included_files_are_theirs() {
    let include = |name: &str| (name == "b.inc").then(|| "// x\n+0 listen(9, 1) = 0\n".to_string());
    let failed = script::run("a.pkt", "--include=b.inc\n", &include).expect_err("no socket 9");
    assert_eq!((&*failed.place.file, failed.place.line), ("b.inc", 2));
    assert_eq!(
        failed.to_string(),
        "b.inc:2: listen gives -1 EBADF\n  expected: 0\n    actual: -1 EBADF"
    );
}
