//! nginx in its ways.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;
use sidecore_e2e::Ground;
use sidecore_e2e::ground::{ENGINE, HOST, available};
use sidecore_e2e::preload::{Meter, Server, command, end_serving, finish, have, serve};

use crate::{body, curl, engine};

/// A configuration of nginx at port 8080, with its files in the ground's folder; `page` is there to be fetched.
pub(crate) fn nginx(ground: &Ground, address: String, more: &str) -> Result<std::path::PathBuf> {
    let folder = ground.folder();
    let shown = folder.display();
    std::fs::write(folder.join("page"), body(1024))?;
    std::fs::write(folder.join("large"), body(3_000_000))?;
    let text = format!(
        "daemon off; {more} pid {shown}/pid; error_log {shown}/errors info; user root;\n\
         events {{ worker_connections 512; }}\n\
         http {{ access_log off; sendfile on; client_body_temp_path {shown}/b;\n\
         proxy_temp_path {shown}/p; fastcgi_temp_path {shown}/f; uwsgi_temp_path {shown}/u;\n\
         scgi_temp_path {shown}/s;\n\
         server {{ listen {address}:8080; root {shown}; }} }}\n"
    );
    let path = folder.join("nginx.conf");
    std::fs::write(&path, text)?;
    Ok(path)
}

/// nginx on the kernel's side.
pub(crate) fn nginx_of_the_kernel(ground: &Ground) -> Result<Server> {
    let configuration = nginx(ground, HOST.to_string(), "master_process off;")?;
    let mut kernel = ground.command("nginx");
    kernel.arg("-c").arg(configuration);
    Server::start(ground, kernel, (HOST, 8080).into())
}

#[test]
fn nginx_serves_from_one_process() -> Result<()> {
    if !available() || !have(&["nginx", "wrk", "curl"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    let configuration = nginx(&ground, ENGINE.to_string(), "master_process off;")?;
    // Files by sendfile, and read and written.
    let text = std::fs::read_to_string(&configuration)?;
    let second = format!("server {{ listen {ENGINE}:8081; sendfile off; root");
    let text = text.replacen(
        "server {",
        &format!("{second} {}; }} server {{", ground.folder().display()),
        1,
    );
    std::fs::write(&configuration, text)?;
    let mut nginx = command(&ground, "nginx");
    nginx.arg("-c").arg(configuration);
    let mut server = Server::start(&ground, nginx, engine(8080))?;
    for port in [8080, 8081] {
        let url = format!("http://{ENGINE}:{port}/large");
        assert!(
            finish(curl(&ground, &[&url]))?.stdout == body(3_000_000),
            "{url}"
        );
    }
    server.assert_fast(&ground)?;
    // From the kernel's side, and with both ends on the engine.
    let meter = Meter::new(&ground);
    for mut wrk in [ground.command("wrk"), command(&ground, "wrk")] {
        wrk.args([
            "-c",
            "50",
            "-t",
            "2",
            "-d",
            "1",
            &format!("http://{ENGINE}:8080/page"),
        ]);
        let told = finish(wrk)?;
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        assert!(
            told.contains("requests in") && !told.contains("Socket errors"),
            "{told}"
        );
    }
    assert!(meter.connections() >= 50, "the second's");
    // SIGKILL with connections open: nothing is left.
    let open = ground.connect(8080)?;
    server.end();
    drop(open);
    ground.eventually("nothing is left", |stat| {
        stat["dtis"] == 0 && stat["uals"].as_array().is_some_and(Vec::is_empty)
    });
    Ok(())
}

#[test]
fn nginx_serves_from_workers_and_reloads() -> Result<()> {
    if !available() || !have(&["nginx", "wrk", "curl"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    let configuration = nginx(&ground, ENGINE.to_string(), "worker_processes 2;")?;
    let mut nginx = command(&ground, "nginx");
    nginx.arg("-c").arg(&configuration);
    let mut server = Server::start(&ground, nginx, engine(8080))?;
    // The master's listener takes nothing; each worker opened it once more.
    ground.eventually("both workers listen", |stat| {
        let sockets = stat["sockets"].as_array();
        sockets.is_some_and(|all| all.iter().filter(|s| s["state"] == "Listen").count() == 3)
    });
    for _ in 0..20 {
        let fetched = finish(curl(&ground, &[&format!("http://{ENGINE}:8080/page")]))?;
        assert!(fetched.stdout == body(1024));
    }
    // New workers take over, with nothing lost on the way.
    let load = {
        let mut wrk = ground.command("wrk");
        wrk.args([
            "-c",
            "20",
            "-t",
            "1",
            "-d",
            "3",
            &format!("http://{ENGINE}:8080/page"),
        ]);
        std::thread::spawn(move || finish(wrk))
    };
    std::thread::sleep(Duration::from_millis(700));
    let before = uals(&ground);
    let pid = rustix::process::Pid::from_raw(server.pid() as i32).context("its pid")?;
    rustix::process::kill_process(pid, rustix::process::Signal::HUP)?;
    ground.eventually("new workers are there, and the old ones gone", |stat| {
        let now = ids(stat);
        now.len() == 3 && now.iter().filter(|ual| before.contains(ual)).count() == 1
    });
    let told = load.join().expect("wrk")?;
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.contains("requests in"), "{told}");
    let fetched = finish(curl(&ground, &[&format!("http://{ENGINE}:8080/large")]))?;
    assert!(fetched.stdout == body(3_000_000));
    server.end();
    ground.eventually("nothing is left", |stat| {
        stat["dtis"] == 0 && stat["uals"].as_array().is_some_and(Vec::is_empty)
    });
    Ok(())
}

/// The UALs that there are.
pub(crate) fn ids(stat: &Value) -> Vec<u64> {
    let uals = stat["uals"].as_array();
    uals.map_or_else(Vec::new, |all| {
        all.iter().filter_map(|ual| ual["id"].as_u64()).collect()
    })
}

fn uals(ground: &Ground) -> Vec<u64> {
    ids(&ground.stat())
}

#[test]
fn nginx_speaks_tls_and_asks_others() -> Result<()> {
    if !available() || !have(&["nginx", "curl", "openssl"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    ground.ip(&["link", "set", "lo", "up"])?;
    let folder = ground.folder();
    let shown = folder.display();
    let mut openssl = Command::new("openssl");
    openssl.args([
        "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
    ]);
    openssl.args(["-subj", "/CN=engine", "-keyout"]);
    openssl
        .arg(folder.join("key"))
        .arg("-out")
        .arg(folder.join("certificate"));
    finish(openssl)?;
    let whole = body(2_000_000);
    let listener = ground.listen()?;
    let upstream = listener.local_addr()?;
    let server = serve(listener, whole.clone(), || {});
    let configuration = nginx(&ground, ENGINE.to_string(), "worker_processes 2;")?;
    let text = std::fs::read_to_string(&configuration)?;
    let more = format!(
        "listen {ENGINE}:8443 ssl; ssl_certificate {shown}/certificate;\n\
         ssl_certificate_key {shown}/key;\n\
         location /up {{ proxy_pass http://{upstream}; }} root"
    );
    std::fs::write(&configuration, text.replace("root /", &format!("{more} /")))?;
    let mut nginx = command(&ground, "nginx");
    nginx.arg("-c").arg(&configuration);
    let _server = Server::start(&ground, nginx, engine(8080))?;
    for (url, wanted) in [
        (format!("https://{ENGINE}:8443/large"), body(3_000_000)),
        (format!("https://{ENGINE}:8443/up"), whole),
    ] {
        // Workers open their listeners one after the other.
        let patient = ["-k", "--retry", "9", "--retry-connrefused", &url];
        let fetched = finish(curl(&ground, &patient))?;
        assert!(fetched.stdout == wanted, "{url}");
    }
    end_serving(&ground, upstream, server)
}
