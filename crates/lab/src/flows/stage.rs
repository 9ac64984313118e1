//! Where flows run: two senders' machines on a bridge, a link, and a receiver's machine behind it.
//!
//! ```text
//!  namespace K: kernel 10.80.0.3 --- veth ---+
//!                                            bridge --- l0 ==link== r0 --- namespace R: kernel 10.80.0.1
//!  engine 10.80.0.2 (this process) --- e0 ---+
//!                      (bridge, e0, l0: namespace S)
//! ```

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use anyhow::{Context, bail};
use rustix::net::sockopt;
use serde_json::Value;
use sidecore_client::{Sockets, SocketsConfig, Ual, UalConfig, blocking};
use sidecore_engine::{Cidr, Device, Engine, EngineConfig, EngineHandle};
use sidecore_nic::{LinkModel, Tap, TapConfig};
use sidecore_sys::netns::with_netns;
use sidecore_tcp::Ecn;

use super::ends::{From, LOOK};
use super::{Plan, Sender, algorithm};
use crate::ground::Namespace;
use crate::link::{End, TapLink, Traffic};

const RECEIVER: Ipv4Addr = Ipv4Addr::new(10, 80, 0, 1);
const ENGINE: Ipv4Addr = Ipv4Addr::new(10, 80, 0, 2);
const KERNEL: &str = "10.80.0.3/24";

/// Bytes that one stream may have on its way: more than any of these links holds.
const STREAM: usize = 16 << 20;

static COUNT: AtomicU32 = AtomicU32::new(0);

/// Namespaces, bridge, link and engine; all of it vanishes with it.
pub struct Stage {
    sockets: Option<Sockets>,
    engine: Option<EngineHandle>,
    stop: Arc<AtomicBool>,
    link: Option<JoinHandle<[Traffic; 2]>>,
    ports: Vec<u16>,
    kernel: Namespace,
    receiver: Namespace,
    _switch: Namespace,
}

impl Stage {
    /// Makes it; the link starts to carry. The engine's connections get the controller of the first plan for an engine.
    ///
    /// # Errors
    ///
    /// Namespaces, devices or the engine cannot be made.
    pub fn create(models: [LinkModel; 2], plans: &[Plan]) -> anyhow::Result<Self> {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let namespace = |side: &str| {
            let namespace = Namespace::create(&format!("f{number}{side}"))?;
            // No frames but the flows': what the link does is decided by a frame's number.
            namespace.sysctl("net/ipv6/conf/default/disable_ipv6", "1")?;
            anyhow::Ok(namespace)
        };
        let (switch, kernel, receiver) = (namespace("s")?, namespace("k")?, namespace("r")?);
        if plans.iter().any(|plan| plan.ecn) {
            kernel.sysctl("net/ipv4/tcp_ecn", "1")?;
            receiver.sysctl("net/ipv4/tcp_ecn", "1")?;
        }
        switch.ip(&["link", "add", "br0", "type", "bridge"])?;
        let veth = [
            "link",
            "add",
            "k0",
            "type",
            "veth",
            "peer",
            "name",
            "k1",
            "netns",
            switch.name(),
        ];
        kernel.ip(&veth)?;
        kernel.ip(&["address", "add", KERNEL, "dev", "k0"])?;
        kernel.ip(&["link", "set", "k0", "up"])?;
        let link = TapLink::create(
            [
                &end("l0", &switch, None),
                &end("r0", &receiver, Some(RECEIVER)),
            ],
            models,
        )?;
        let engine = start_engine(&switch, plans)?;
        for port in ["k1", "l0", "e0"] {
            switch.ip(&["link", "set", port, "master", "br0", "up"])?;
        }
        switch.ip(&["link", "set", "br0", "up"])?;
        let stop = Arc::new(AtomicBool::new(false));
        let link = carry(link, &stop)?;
        let ual = Ual::open_on(engine.connect()?, &UalConfig::default())?;
        let config = SocketsConfig {
            stream_bytes: STREAM,
            linger: LOOK,
            ..SocketsConfig::default()
        };
        Ok(Self {
            sockets: Some(Sockets::new(&ual, config)?),
            engine: Some(engine),
            stop,
            link: Some(link),
            ports: Vec::new(),
            kernel,
            receiver,
            _switch: switch,
        })
    }

    /// Connects a flow for each plan: sending and receiving end.
    pub(super) fn connect(
        &mut self,
        plans: &[Plan],
        latest: Instant,
    ) -> anyhow::Result<Vec<(From, TcpStream)>> {
        let flow = |plan: &Plan| {
            let listener = with_netns(self.receiver.name(), || TcpListener::bind((RECEIVER, 0)))??;
            let to = listener.local_addr()?;
            let from = self
                .open(plan, to, latest)
                .with_context(|| format!("{} does not connect", plan.name))?;
            let (stream, _) = listener.accept()?;
            stream.set_read_timeout(Some(LOOK))?;
            Ok((to.port(), (from, stream)))
        };
        let flows: anyhow::Result<Vec<_>> = plans.iter().map(flow).collect();
        let (ports, flows) = flows?.into_iter().unzip();
        self.ports = ports;
        Ok(flows)
    }

    fn open(&self, plan: &Plan, to: SocketAddr, latest: Instant) -> anyhow::Result<From> {
        let timeout = latest.saturating_duration_since(Instant::now()).max(LOOK);
        match plan.sender {
            Sender::Engine => {
                let sockets = self.sockets.as_ref().context("no engine")?;
                let stream = blocking::TcpStream::connect_timeout(sockets, &to, timeout)?;
                stream.set_write_timeout(Some(LOOK))?;
                Ok(From::Engine(stream))
            }
            Sender::Kernel => {
                let connect = || TcpStream::connect_timeout(&to, timeout);
                let stream = with_netns(self.kernel.name(), connect)??;
                sockopt::set_tcp_congestion(&stream, plan.controller)
                    .with_context(|| format!("no congestion control named {}", plan.controller))?;
                // What has not gone out at the end is not waited for.
                sockopt::set_socket_linger(&stream, Some(std::time::Duration::ZERO))?;
                stream.set_write_timeout(Some(LOOK))?;
                Ok(From::Kernel(stream))
            }
        }
    }

    /// The receiver's port of a flow.
    pub(super) fn port(&self, flow: usize) -> u16 {
        self.ports.get(flow).copied().unwrap_or(0)
    }

    /// What the engine says of its connections, by the receiver's port.
    pub(super) fn engine_says(&self) -> HashMap<u16, Value> {
        let text = self.engine.as_ref().and_then(EngineHandle::stat_json);
        let stat: Value = text
            .and_then(|text| serde_json::from_str(&text).ok())
            .unwrap_or_default();
        let connections = stat["connections"].as_array().cloned().unwrap_or_default();
        let port = |connection: &Value| {
            let remote: SocketAddr = connection["remote"].as_str()?.parse().ok()?;
            Some((remote.port(), connection["info"].clone()))
        };
        connections.iter().filter_map(port).collect()
    }

    /// Takes everything down; what the link did.
    pub(super) fn end(mut self) -> [Traffic; 2] {
        self.take_down()
    }

    fn take_down(&mut self) -> [Traffic; 2] {
        self.sockets = None;
        if let Some(engine) = self.engine.take() {
            engine.stop();
        }
        self.stop.store(true, Ordering::Relaxed);
        let link = self.link.take().and_then(|link| link.join().ok());
        link.unwrap_or_default()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.take_down();
    }
}

fn end(name: &str, namespace: &Namespace, address: Option<Ipv4Addr>) -> End {
    End {
        name: name.into(),
        netns: Some(namespace.name().to_owned()),
        addresses: address
            .map(|address| (IpAddr::V4(address), 24))
            .into_iter()
            .collect(),
    }
}

fn start_engine(switch: &Namespace, plans: &[Plan]) -> anyhow::Result<EngineHandle> {
    let tap = Tap::create(TapConfig {
        name: "e0".into(),
        netns: Some(switch.name().to_owned()),
        ..TapConfig::default()
    })?;
    let mut config = EngineConfig {
        device: Device::Nic(Box::new(tap.into())),
        addresses: vec![Cidr {
            address: ENGINE,
            prefix: 24,
        }],
        drain: LOOK,
        ..EngineConfig::default()
    };
    if let Some(plan) = plans.iter().find(|plan| plan.sender == Sender::Engine) {
        let Some(algorithm) = algorithm(plan.controller) else {
            bail!("the engine has no controller named {}", plan.controller);
        };
        config.tcp.congestion = algorithm;
        config.tcp.pacing = plan.paced;
        if plan.ecn {
            config.tcp.ecn = Ecn::Request;
        }
    }
    Ok(Engine::spawn(config)?)
}

fn carry(mut link: TapLink, stop: &Arc<AtomicBool>) -> anyhow::Result<JoinHandle<[Traffic; 2]>> {
    let stop = Arc::clone(stop);
    let run = move || {
        let result = link.run_until(|_| stop.load(Ordering::Relaxed));
        if let Err(error) = result {
            eprintln!("the link ended: {error:#}");
        }
        link.traffic()
    };
    Ok(std::thread::Builder::new().name("link".into()).spawn(run)?)
}
