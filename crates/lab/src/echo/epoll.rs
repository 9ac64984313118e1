//! Echo on kernel sockets with epoll: one `read` and one `write` a request, level-triggered.

use std::convert::Infallible;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};

use anyhow::bail;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use super::{Announcement, KernelEcho, listen};

/// Marks the listener among the events; descriptors are smaller.
const LISTENER: u64 = u64::MAX;

/// Serves until the process ends.
pub fn serve(
    config: &KernelEcho,
    ready: &mut dyn FnMut(Announcement),
) -> anyhow::Result<Infallible> {
    let worker = if config.spin { spin } else { sleep };
    listen::serve_on_cores(config, ready, worker)
}

struct Connection {
    stream: TcpStream,
    /// Bytes that did not fit into the socket; nothing is read while there are any.
    unsent: Vec<u8>,
}

struct Worker {
    epoll: OwnedFd,
    listener: Option<TcpListener>,
    /// By descriptor number.
    connections: Vec<Option<Connection>>,
    open: usize,
    buffer: Vec<u8>,
}

fn sleep(listener: TcpListener) -> anyhow::Result<Infallible> {
    Worker::new(Some(listener))?.run(None)?;
    bail!("the server ended")
}

fn spin(listener: TcpListener) -> anyhow::Result<Infallible> {
    Worker::new(Some(listener))?.run(Some(&Timespec::default()))?;
    bail!("the server ended")
}

/// Serves these connections, which must be non-blocking, until all have ended.
pub fn serve_streams(streams: Vec<TcpStream>) -> anyhow::Result<()> {
    let mut worker = Worker::new(None)?;
    for stream in streams {
        worker.adopt(stream)?;
    }
    worker.run(None)
}

impl Worker {
    fn new(listener: Option<TcpListener>) -> anyhow::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        if let Some(listener) = &listener {
            epoll::add(
                &epoll,
                listener,
                EventData::new_u64(LISTENER),
                EventFlags::IN,
            )?;
        }
        Ok(Self {
            epoll,
            listener,
            connections: Vec::new(),
            open: 0,
            buffer: vec![0; 256 * 1024],
        })
    }

    /// Serves while there is a listener or a connection; `timeout`: of each wait (none: for ever).
    fn run(&mut self, timeout: Option<&Timespec>) -> anyhow::Result<()> {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(1024);
        while self.listener.is_some() || self.open > 0 {
            let spare = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.epoll, spare, timeout) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in events.drain(..) {
                match event.data.u64() {
                    LISTENER => self.accept()?,
                    number => self.serve(number as usize),
                }
            }
        }
        Ok(())
    }

    fn accept(&mut self) -> io::Result<()> {
        while let Some(listener) = &self.listener {
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error),
            };
            stream.set_nonblocking(true)?;
            self.adopt(stream)?;
        }
        Ok(())
    }

    fn adopt(&mut self, stream: TcpStream) -> io::Result<()> {
        let number = stream.as_raw_fd() as usize;
        epoll::add(
            &self.epoll,
            &stream,
            EventData::new_u64(number as u64),
            EventFlags::IN,
        )?;
        if self.connections.len() <= number {
            self.connections.resize_with(number + 1, || None);
        }
        self.connections[number] = Some(Connection {
            stream,
            unsent: Vec::new(),
        });
        self.open += 1;
        Ok(())
    }

    /// Serves an event of a connection; a broken or ended connection is closed.
    fn serve(&mut self, number: usize) {
        let Some(Some(connection)) = self.connections.get_mut(number) else {
            return;
        };
        let goes_on = match connection.unsent.is_empty() {
            true => echo(&self.epoll, connection, &mut self.buffer),
            false => send_rest(&self.epoll, connection),
        };
        if !matches!(goes_on, Ok(true)) {
            self.connections[number] = None;
            self.open -= 1;
        }
    }
}

/// Reads once and writes it back. `false`: the peer has ended.
fn echo(epoll: &OwnedFd, connection: &mut Connection, buffer: &mut [u8]) -> io::Result<bool> {
    let read = match connection.stream.read(buffer) {
        Ok(0) => return Ok(false),
        Ok(read) => read,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
        Err(error) => return Err(error),
    };
    let written = match connection.stream.write(&buffer[..read]) {
        Ok(written) => written,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
        Err(error) => return Err(error),
    };
    if written < read {
        connection.unsent.extend_from_slice(&buffer[written..read]);
        want(epoll, connection, EventFlags::OUT)?;
    }
    Ok(true)
}

fn send_rest(epoll: &OwnedFd, connection: &mut Connection) -> io::Result<bool> {
    match connection.stream.write(&connection.unsent) {
        Ok(written) => drop(connection.unsent.drain(..written)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
        Err(error) => return Err(error),
    }
    if connection.unsent.is_empty() {
        want(epoll, connection, EventFlags::IN)?;
    }
    Ok(true)
}

fn want(epoll: &OwnedFd, connection: &Connection, flags: EventFlags) -> io::Result<()> {
    let data = EventData::new_u64(connection.stream.as_raw_fd() as u64);
    Ok(epoll::modify(epoll, &connection.stream, data, flags)?)
}
