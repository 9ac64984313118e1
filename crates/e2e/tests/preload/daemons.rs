//! More servers as Debian has them, and their usual clients: what they carry is compared byte by byte.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sidecore_e2e::Ground;
use sidecore_e2e::ground::{ENGINE, HOST, available};
use sidecore_e2e::preload::{Server, command, end_serving, finish, have, python_with, serve};

use crate::{body, curl, engine};

/// How long a server's workers may take to be there, after the server listens.
const PATIENCE: Duration = Duration::from_secs(30);

/// An engine that everybody may use, and a folder with a file that everybody may read: for servers that give up their rights.
fn open_ground() -> Result<(Ground, PathBuf)> {
    let ground = Ground::new()?;
    ground.ip(&["link", "set", "lo", "up"])?;
    let folder = ground.socket().parent().context("a folder")?.to_owned();
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o755))?;
    std::fs::set_permissions(ground.socket(), PermissionsExt::from_mode(0o666))?;
    std::fs::write(folder.join("large"), body(3_000_000))?;
    std::fs::write(folder.join("page"), body(1000))?;
    Ok((ground, folder))
}

/// Fetches until it is served, and then compares: the server's workers may not be there yet.
fn fetches(ground: &Ground, url: &str, more: &[&str], expected: &[u8]) -> Result<()> {
    let begun = Instant::now();
    loop {
        let mut curl = ground.command("curl");
        curl.args(["-sS", "--max-time", "5", url]).args(more);
        let done = curl.output()?;
        if done.status.success() {
            assert!(done.stdout == expected, "{url}: other bytes");
            return Ok(());
        }
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        ensure!(begun.elapsed() < PATIENCE, "{url}: {said}");
    }
}

/// Requests of ab's, ten at a time: all must be answered.
fn bench(ground: &Ground, url: &str, count: u32) -> Result<()> {
    let mut ab = ground.command("ab");
    ab.args(["-q", "-c", "10", "-n", &count.to_string(), url]);
    let told = finish(ab)?;
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    let all = told.lines().any(|line| {
        let mut words = line.split_whitespace();
        line.starts_with("Complete requests:")
            && words.next_back() == Some(count.to_string().as_str())
    });
    assert!(all && !told.contains("Non-2xx"), "{told}");
    assert!(
        told.lines()
            .any(|line| line.starts_with("Failed requests:") && line.ends_with(" 0")),
        "{told}"
    );
    Ok(())
}

fn url(port: u16, path: &str) -> String {
    format!("http://{ENGINE}:{port}/{path}")
}

#[test]
fn apache_serves_in_each_of_its_ways_and_as_another_user() -> Result<()> {
    const MODULES: &str = "/usr/lib/apache2/modules";
    if !available() || !have(&["apache2", "ab", "curl"]) {
        return Ok(());
    }
    for way in ["event", "worker", "prefork"] {
        let (ground, folder) = open_ground()?;
        let shown = folder.display();
        // Below 1024, where only root may listen.
        let text = format!(
            "ServerRoot {shown}\nServerName test\nPidFile {shown}/pid\nErrorLog {shown}/errors\n\
             LoadModule mpm_{way}_module {MODULES}/mod_mpm_{way}.so\n\
             LoadModule authz_core_module {MODULES}/mod_authz_core.so\n\
             Listen {ENGINE}:80\nDocumentRoot {shown}\nUser www-data\nGroup www-data\n\
             <Directory {shown}>\nRequire all granted\n</Directory>\n"
        );
        let configuration = folder.join("apache.conf");
        std::fs::write(&configuration, text)?;
        let mut apache = command(&ground, "apache2");
        apache.arg("-f").arg(&configuration).arg("-DFOREGROUND");
        let server = Server::start(&ground, apache, engine(80))?;
        fetches(&ground, &url(80, "large"), &[], &body(3_000_000))?;
        bench(&ground, &url(80, "large"), 40)?;
        server.assert_fast(&ground)?;
        // A graceful restart while there is load: other workers take over, and nobody notices.
        let pid = rustix::process::Pid::from_raw(server.pid() as i32).context("its number")?;
        let loaded = std::thread::scope(|scope| {
            let load = scope.spawn(|| bench(&ground, &url(80, "page"), 1500));
            std::thread::sleep(Duration::from_millis(300));
            let told = rustix::process::kill_process(pid, rustix::process::Signal::USR1);
            (load.join(), told)
        });
        loaded.1?;
        loaded.0.expect("ab")?;
        fetches(&ground, &url(80, "large"), &[], &body(3_000_000))?;
    }
    Ok(())
}

#[test]
fn lighttpd_and_phps_own_server_serve() -> Result<()> {
    if !available() || !have(&["lighttpd", "php", "ab", "curl"]) {
        return Ok(());
    }
    let (ground, folder) = open_ground()?;
    let configuration = folder.join("lighttpd.conf");
    let text = format!(
        "server.document-root = \"{0}\"\nserver.bind = \"{ENGINE}\"\nserver.port = 8002\n",
        folder.display()
    );
    std::fs::write(&configuration, text)?;
    let mut lighttpd = command(&ground, "lighttpd");
    lighttpd.arg("-D").arg("-f").arg(&configuration);
    let mut php = command(&ground, "php");
    php.args(["-S", &format!("{ENGINE}:8003"), "-t"])
        .arg(&folder);
    for (program, port) in [(lighttpd, 8002), (php, 8003)] {
        let server = Server::start(&ground, program, engine(port))?;
        fetches(&ground, &url(port, "large"), &[], &body(3_000_000))?;
        bench(&ground, &url(port, "large"), 40)?;
        server.assert_fast(&ground)?;
    }
    Ok(())
}

/// What both kinds of Python's servers answer: what was sent, else the file.
const APPLICATION: &str = r#"
import os
large = open(os.path.join(os.path.dirname(__file__), "large"), "rb").read()
def wsgi(environ, start):
    length = int(environ.get("CONTENT_LENGTH") or 0)
    answer = environ["wsgi.input"].read(length) if length else large
    start("200 OK", [("Content-Length", str(len(answer)))])
    return [answer]
async def asgi(scope, receive, send):
    if scope["type"] != "http":
        return
    answer, more = b"", True
    while more:
        message = await receive()
        answer, more = answer + message.get("body", b""), message.get("more_body")
    answer = answer or large
    headers = [(b"content-length", str(len(answer)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})
"#;

#[test]
fn gunicorn_and_uvicorn_serve() -> Result<()> {
    if !available() || !have(&["ab", "curl"]) {
        return Ok(());
    }
    let (ground, folder) = open_ground()?;
    std::fs::write(folder.join("application.py"), APPLICATION)?;
    let sent = folder.join("sent");
    std::fs::write(&sent, body(1_000_000))?;
    let data = format!("@{}", sent.display());
    let folder = folder.to_str().context("its name")?;
    let bind = format!("{ENGINE}:8010");
    let gunicorn = "-m gunicorn -w 2 --threads 2 -k gthread --chdir";
    let uvicorn = "-m uvicorn --port 8011 --app-dir";
    for (module, how, more, port) in [
        (
            "gunicorn",
            gunicorn,
            ["-b", bind.as_str(), "application:wsgi"],
            8010,
        ),
        (
            "uvicorn",
            uvicorn,
            ["--host", "10.77.0.2", "application:asgi"],
            8011,
        ),
    ] {
        let Some(python) = python_with(module) else {
            continue;
        };
        let mut program = command(&ground, &python);
        program.args(how.split(' ')).arg(folder).args(more);
        let server = Server::start(&ground, program, engine(port))?;
        fetches(&ground, &url(port, ""), &[], &body(3_000_000))?;
        fetches(
            &ground,
            &url(port, ""),
            &["--data-binary", &data],
            &body(1_000_000),
        )?;
        bench(&ground, &url(port, ""), 40)?;
        server.assert_fast(&ground)?;
    }
    Ok(())
}

#[test]
fn rsync_carries_files_in_both_roles() -> Result<()> {
    if !available() || !have(&["rsync"]) {
        return Ok(());
    }
    let (ground, folder) = open_ground()?;
    let source = folder.join("module");
    std::fs::create_dir(&source)?;
    std::fs::write(source.join("twenty"), body(20_000_000))?;
    let daemon = |mut rsync: Command, address: SocketAddr| -> Result<Server> {
        let file = folder.join(format!("rsyncd-{}.conf", address.port()));
        let text = format!(
            "address = {}\nport = {}\nuse chroot = no\nuid = root\ngid = root\n\
             [module]\npath = {}\nread only = no\n",
            address.ip(),
            address.port(),
            source.display()
        );
        std::fs::write(&file, text)?;
        rsync
            .args(["--daemon", "--no-detach", "--config"])
            .arg(&file);
        Server::start(&ground, rsync, address)
    };
    let copy = |mut rsync: Command, from: &str, to: &str| -> Result<()> {
        rsync.args(["-a", "--checksum", "--timeout=30", from, to]);
        finish(rsync).map(|_| ())
    };
    let got = folder.join("got");
    let path = got.to_str().context("its name")?;
    let same = |file: &PathBuf| -> Result<()> {
        assert!(
            std::fs::read(file)? == body(20_000_000),
            "{}",
            file.display()
        );
        Ok(std::fs::remove_file(file)?)
    };
    let here = daemon(command(&ground, "rsync"), engine(8730))?;
    let module = format!("rsync://{ENGINE}:8730/module");
    copy(ground.command("rsync"), &format!("{module}/twenty"), path)?;
    copy(ground.command("rsync"), path, &format!("{module}/up"))?;
    here.assert_fast(&ground)?;
    same(&source.join("up"))?;
    same(&got)?;
    let there = SocketAddr::from((HOST, 8731));
    let _there = daemon(ground.command("rsync"), there)?;
    let module = format!("rsync://{there}/module");
    copy(command(&ground, "rsync"), &format!("{module}/twenty"), path)?;
    copy(command(&ground, "rsync"), path, &format!("{module}/up"))?;
    same(&source.join("up"))?;
    same(&got)
}

#[test]
fn git_clones_and_serves() -> Result<()> {
    if !available() || !have(&["git"]) {
        return Ok(());
    }
    let (ground, folder) = open_ground()?;
    let tree = folder.join("tree");
    std::fs::create_dir(&tree)?;
    std::fs::write(tree.join("large"), body(3_000_000))?;
    for arguments in [
        "init -q",
        "add large",
        "-c user.name=a -c user.email=a@b commit -q -m large",
    ] {
        let mut git = Command::new("git");
        git.arg("-C").arg(&tree).args(arguments.split(' '));
        finish(git)?;
    }
    let daemon = |mut git: Command, address: SocketAddr| -> Result<Server> {
        git.args(["daemon", "--export-all", "--reuseaddr"]);
        git.arg(format!("--listen={}", address.ip()));
        git.arg(format!("--port={}", address.port()));
        git.arg(format!("--base-path={}", folder.display()));
        Server::start(&ground, git, address)
    };
    let clone = |mut git: Command, address: SocketAddr| -> Result<()> {
        let got = folder.join("clone");
        git.args(["clone", "-q", &format!("git://{address}/tree")])
            .arg(&got);
        finish(git)?;
        assert!(
            std::fs::read(got.join("large"))? == body(3_000_000),
            "{address}"
        );
        Ok(std::fs::remove_dir_all(got)?)
    };
    let _here = daemon(command(&ground, "git"), engine(9418))?;
    clone(ground.command("git"), engine(9418))?;
    let there = SocketAddr::from((HOST, 9419));
    let _there = daemon(ground.command("git"), there)?;
    clone(command(&ground, "git"), there)
}

#[test]
fn stunnel_and_varnish_stand_before_another() -> Result<()> {
    if !available() || !have(&["stunnel4", "varnishd", "openssl", "curl"]) {
        return Ok(());
    }
    let (ground, folder) = open_ground()?;
    let shown = folder.display();
    let listener = ground.inside(|| std::net::TcpListener::bind((HOST, 0)))?;
    let address = listener.local_addr()?;
    let behind = serve(listener, body(3_000_000), || {});
    let mut openssl = Command::new("openssl");
    openssl.args([
        "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
    ]);
    openssl
        .args(["-subj", "/CN=test", "-keyout"])
        .arg(folder.join("key"));
    openssl.arg("-out").arg(folder.join("certificate"));
    finish(openssl)?;
    let configuration = folder.join("stunnel.conf");
    let text = format!(
        "foreground = yes\npid =\nkey = {shown}/key\ncert = {shown}/certificate\n\
         [test]\naccept = {ENGINE}:8020\nconnect = {address}\n"
    );
    std::fs::write(&configuration, text)?;
    let mut stunnel = command(&ground, "stunnel4");
    stunnel.arg(&configuration);
    let server = Server::start(&ground, stunnel, engine(8020))?;
    let secure = format!("https://{ENGINE}:8020/");
    for _ in 0..3 {
        let got = finish(curl(&ground, &["-k", &secure]))?;
        assert!(got.stdout == body(3_000_000), "{secure}");
    }
    server.assert_fast(&ground)?;
    let mut varnish = command(&ground, "varnishd");
    varnish.args(["-F", "-j", "none", "-s", "malloc,64m", "-a"]);
    varnish.args([&format!("{ENGINE}:8021"), "-b", &address.to_string(), "-n"]);
    varnish.arg(folder.join("varnish"));
    let server = Server::start(&ground, varnish, engine(8021))?;
    for _ in 0..3 {
        fetches(&ground, &url(8021, ""), &[], &body(3_000_000))?;
    }
    server.assert_fast(&ground)?;
    end_serving(&ground, address, behind)
}

/// Asks a name server for an address, by both protocols, and many times.
fn asks(ground: &Ground, port: u16) -> Result<()> {
    let dig = |more: &[&str]| -> Result<String> {
        let mut dig = ground.command("dig");
        dig.args(["+short", "+time=5", "+tries=2", "-p", &port.to_string()]);
        dig.arg(format!("@{ENGINE}")).args(more);
        Ok(String::from_utf8_lossy(&finish(dig)?.stdout).into_owned())
    };
    for how in ["+notcp", "+tcp"] {
        assert_eq!(dig(&[how, "a.test"])?, "192.0.2.7\n", "{how}");
    }
    for _ in 0..20 {
        assert_eq!(dig(&["+notcp", "a.test"])?, "192.0.2.7\n");
    }
    Ok(())
}

#[test]
fn name_servers_answer_by_udp_and_tcp() -> Result<()> {
    if !available() || !have(&["dnsmasq", "unbound", "dig"]) {
        return Ok(());
    }
    let (ground, folder) = open_ground()?;
    let mut dnsmasq = command(&ground, "dnsmasq");
    dnsmasq.args([
        "-k",
        "-p",
        "8053",
        "--bind-interfaces",
        "--no-resolv",
        "--no-hosts",
    ]);
    dnsmasq.args([
        "-u",
        "root",
        "--conf-file=/dev/null",
        "--address=/a.test/192.0.2.7",
    ]);
    dnsmasq.args([&format!("--listen-address={ENGINE}"), "--pid-file="]);
    let configuration = folder.join("unbound.conf");
    let text = format!(
        "server:\n interface: {ENGINE}@8054\n access-control: 0.0.0.0/0 allow\n chroot: \"\"\n\
         username: \"\"\n directory: \"{0}\"\n pidfile: \"\"\n use-syslog: no\n do-daemonize: no\n\
         num-threads: 2\n local-zone: \"a.test.\" static\n local-data: \"a.test. A 192.0.2.7\"\n",
        folder.display()
    );
    std::fs::write(&configuration, text)?;
    let mut unbound = command(&ground, "unbound");
    unbound.arg("-d").arg("-c").arg(&configuration);
    for (program, port) in [(dnsmasq, 8053), (unbound, 8054)] {
        let server = Server::start(&ground, program, engine(port))?;
        asks(&ground, port)?;
        server.assert_fast(&ground)?;
    }
    Ok(())
}

#[test]
fn mosquitto_carries_messages() -> Result<()> {
    if !available() || !have(&["mosquitto", "mosquitto_pub", "mosquitto_sub"]) {
        return Ok(());
    }
    let (ground, folder) = open_ground()?;
    let configuration = folder.join("mosquitto.conf");
    let text = format!("listener 1883 {ENGINE}\nallow_anonymous true\nuser root\n");
    std::fs::write(&configuration, text)?;
    let mut mosquitto = command(&ground, "mosquitto");
    mosquitto.arg("-c").arg(&configuration);
    let server = Server::start(&ground, mosquitto, engine(1883))?;
    let host = ENGINE.to_string();
    // A message that is kept: who subscribes later has it, too.
    let message = folder.join("large");
    for mut publisher in [
        ground.command("mosquitto_pub"),
        command(&ground, "mosquitto_pub"),
    ] {
        publisher
            .args(["-h", &host, "-t", "large", "-q", "1", "-r", "-f"])
            .arg(&message);
        finish(publisher)?;
        let mut subscriber = ground.command("mosquitto_sub");
        subscriber.args(["-h", &host, "-t", "large", "-C", "1", "-N", "-W", "30"]);
        assert!(finish(subscriber)?.stdout == body(3_000_000), "the message");
    }
    server.assert_fast(&ground)
}
