//! One socket at the agent: an application that opens a UAL, or a tool that asks.

use std::collections::HashMap;
use std::io::Write;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use sidecore_abi::agent::{MESSAGE_ROOM, MessageError, Reply, Request, RequestKind};
use sidecore_abi::{RegionId, Status};
use sidecore_shm::Shared as Memory;
use sidecore_sys::memfd::{Memfd, check_sealed};
use sidecore_sys::unix::{Credentials, FDS_MAX, Stream, close_aside};
use sidecore_sys::wake::WakePair;

use super::custody::{Custodian, NOBODY};
use super::{Shared, open};
use crate::capture::{Capture, Filter};
use crate::mailbox::Message;
use crate::ual::regions::SLOT_BITS;

/// How long the engine thread may take to answer a question. It looks at its mail every turn.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// Requests served for one socket before the others get their turn.
const REQUESTS: usize = 16;

/// One socket.
pub(crate) struct Session {
    socket: Stream,
    peer: Credentials,
    ual: Option<OpenUal>,
    /// An answer is owed: nothing else is served meanwhile.
    waits: bool,
    /// Other processes may hold its descriptors.
    spread: bool,
}

/// What the agent remembers of a UAL.
struct OpenUal {
    id: u64,
    wait_cells: u32,
    evqs: u32,
    /// Regions in use, with their sizes.
    regions: HashMap<u32, u64>,
    bytes: u64,
    /// Next id for each slot that was used before.
    generations: HashMap<u32, u32>,
    next_slot: u32,
    free: Vec<u32>,
    /// It carries what several processes hold, and counts against no policy.
    custodian: bool,
}

impl OpenUal {
    fn take_region_id(&mut self, limit: u32) -> Option<RegionId> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.next_slot < limit.min(1 << SLOT_BITS) => {
                self.next_slot += 1;
                self.next_slot - 1
            }
            None => return None,
        };
        let generation = self.generations.entry(slot).or_insert(0);
        // The last generation is left out: with the last slot it would be the pool's id.
        *generation = (*generation + 1) % ((1 << (32 - SLOT_BITS)) - 1);
        Some(RegionId(slot | *generation << SLOT_BITS))
    }
}

/// An answer: reply and descriptors.
pub(super) type Answer = (Reply, Vec<OwnedFd>);

pub(super) fn refuse(status: Status) -> Answer {
    (Reply::new(status), Vec::new())
}

impl Session {
    pub(crate) fn new(socket: Stream) -> std::io::Result<Self> {
        let peer = socket.peer_credentials()?;
        socket.set_blocking(false)?;
        Ok(Self {
            socket,
            peer,
            ual: None,
            waits: false,
            spread: false,
        })
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Serves what has come; false when the other end is gone.
    pub(crate) fn serve(&mut self, shared: &mut Shared) -> bool {
        for _ in 0..REQUESTS {
            let mut bytes = [0u8; MESSAGE_ROOM];
            let (n, fds) = match self.socket.recv_with_fds(&mut bytes) {
                Ok((0, _)) => return false,
                Ok(received) => received,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return true,
                Err(_) => return false,
            };
            if self.waits {
                // It did not wait for its answer.
                close_aside(fds);
                return false;
            }
            let answer = match Request::from_bytes(&bytes[..n]) {
                Ok(request) => self.answer(shared, &request, fds),
                Err(error) => {
                    tracing::warn!(pid = self.peer.pid, ?error, "a message that cannot be read");
                    close_aside(fds);
                    Some(refuse(match error {
                        MessageError::Version(_) => Status::NotSupported,
                        _ => Status::Invalid,
                    }))
                }
            };
            let sent = match answer {
                Some(answer) => self.send(answer),
                None => {
                    self.waits = true;
                    true
                }
            };
            if !sent {
                return false;
            }
        }
        true
    }

    /// Whether it has this UAL.
    pub(crate) fn is(&self, ual: u64) -> bool {
        self.ual.as_ref().is_some_and(|open| open.id == ual)
    }

    /// Gives the answer that is owed.
    pub(crate) fn answer_late(&mut self, answer: Answer) {
        if std::mem::replace(&mut self.waits, false) {
            // If it does not take it, its end is told by its socket.
            self.send(answer);
        }
    }

    /// False: a client that does not read its answers is not worth waiting for.
    fn send(&self, (reply, fds): Answer) -> bool {
        let borrowed: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
        let sent = self.socket.try_send_with_fds(&reply.to_bytes(), &borrowed);
        sent.is_ok()
    }

    /// `None`: later.
    fn answer(
        &mut self,
        shared: &mut Shared,
        request: &Request,
        fds: Vec<OwnedFd>,
    ) -> Option<Answer> {
        let ual = self.ual.as_ref().map(|open| open.id);
        match (request.kind, ual) {
            (RequestKind::RegisterRegion, _) => return Some(self.register(shared, request, fds)),
            (RequestKind::Release, Some(ual)) => {
                return Some(refuse(shared.release(ual, request, fds)));
            }
            (RequestKind::Adopt, Some(ual)) => return shared.adopt(ual, request, fds),
            (RequestKind::Option, Some(ual)) => return shared.option(ual, request, fds),
            (RequestKind::Describe, Some(ual)) => {
                return Some(refuse(shared.describe(ual, request, fds)));
            }
            // Who only asks needs no UAL.
            (RequestKind::Adopt, None) if request.args[2] == 1 => {
                return shared.adopt(NOBODY, request, fds);
            }
            _ => close_aside(fds),
        }
        Some(self.answer_simple(shared, request))
    }

    /// Requests without descriptors, which are answered at once.
    fn answer_simple(&mut self, shared: &mut Shared, request: &Request) -> Answer {
        match request.kind {
            RequestKind::OpenUal => self.open(shared, request),
            RequestKind::RegisterRegion => refuse(Status::Invalid),
            RequestKind::Release
            | RequestKind::Adopt
            | RequestKind::Describe
            | RequestKind::Option => refuse(Status::WrongState),
            RequestKind::Leave => match &self.ual {
                Some(open) => refuse(shared.leave(open.id, request)),
                None => refuse(Status::WrongState),
            },
            RequestKind::Spread => {
                self.spread = true;
                refuse(Status::Ok)
            }
            RequestKind::Recalls => self.recalls(shared),
            RequestKind::Custody => self.custody(shared),
            RequestKind::WaitSocket => self.wait_socket(shared, request),
            RequestKind::Stat => text(shared, Message::Stat),
            RequestKind::Addresses => text(shared, Message::Addresses),
            RequestKind::Descriptors => self.descriptors(shared, request),
            RequestKind::Capture => self.capture(shared, request),
        }
    }

    fn open(&mut self, shared: &mut Shared, request: &Request) -> Answer {
        let policy = &shared.policy;
        if self.ual.is_some() {
            return refuse(Status::WrongState);
        }
        let own = self.peer.pid == std::process::id();
        if !own
            && !policy.users.is_empty()
            && self.peer.uid != 0
            && !policy.users.contains(&self.peer.uid)
        {
            tracing::warn!(
                uid = self.peer.uid,
                pid = self.peer.pid,
                "policy: this user may not open a UAL"
            );
            return refuse(Status::NotPermitted);
        }
        if shared.open >= policy.uals {
            return refuse(Status::NoResources);
        }
        let opened = self
            .socket
            .as_fd()
            .try_clone_to_owned()
            .and_then(|session| {
                open::open(
                    policy,
                    request,
                    shared.next_id,
                    shared.epoch,
                    &self.peer,
                    session,
                )
            });
        let opened = match opened {
            Ok(opened) => opened,
            Err(error) => {
                tracing::warn!(%error, "cannot make the memory of a UAL");
                return refuse(Status::NoResources);
            }
        };
        shared.next_id += 1;
        self.ual = Some(OpenUal {
            id: opened.ual.id,
            wait_cells: opened.ual.geometry.wait_cells,
            evqs: opened.ual.geometry.evqs,
            regions: HashMap::new(),
            bytes: 0,
            generations: HashMap::new(),
            next_slot: 0,
            free: Vec::new(),
            custodian: false,
        });
        if !shared.mailbox.send(Message::Open(Box::new(opened.ual))) {
            return refuse(Status::Aborted);
        }
        shared.open += 1;
        (opened.reply, opened.fds.into())
    }

    fn register(
        &mut self,
        shared: &mut Shared,
        request: &Request,
        mut fds: Vec<OwnedFd>,
    ) -> Answer {
        if fds.len() != 1 || self.ual.is_none() {
            close_aside(fds);
            return refuse(Status::Invalid);
        }
        let (Some(ual), Some(fd)) = (&mut self.ual, fds.pop()) else {
            return refuse(Status::Invalid);
        };
        let [wished, evq, cookie] = request.args;
        // Sealed against shrinking, so that it cannot vanish under the engine; and no file, for files can be cut.
        let Ok(len) = check_sealed(&fd) else {
            close_aside(vec![fd]);
            return refuse(Status::BadExtent);
        };
        if wished > len {
            return refuse(Status::BadExtent);
        }
        if ual.bytes.saturating_add(len) > shared.policy.region_bytes
            || ual.regions.len() >= shared.policy.regions as usize
        {
            return refuse(Status::NoResources);
        }
        let answer = match evq {
            u64::MAX => None,
            evq if evq < u64::from(ual.evqs) => Some((evq as u16, cookie)),
            _ => return refuse(Status::Invalid),
        };
        let Ok(memory) = Memory::map_foreign(&fd, len) else {
            return refuse(Status::BadExtent);
        };
        let Some(id) = ual.take_region_id(shared.policy.regions) else {
            return refuse(Status::NoResources);
        };
        ual.regions.insert(id.0, len);
        ual.bytes += len;
        shared.mailbox.send(Message::Region {
            ual: ual.id,
            id,
            memory,
            answer,
        });
        (
            Reply {
                args: [u64::from(id.0), len, 0],
                ..Reply::new(Status::Ok)
            },
            Vec::new(),
        )
    }

    /// The engine has let go of a region: its id, and its share of the quota, are free again.
    pub(crate) fn region_gone(&mut self, ual: u64, region: RegionId) {
        let Some(open) = self.ual.as_mut().filter(|open| open.id == ual) else {
            return;
        };
        if let Some(len) = open.regions.remove(&region.0) {
            open.bytes -= len;
            open.free.push(region.0 & ((1 << SLOT_BITS) - 1));
        }
    }

    fn wait_socket(&mut self, shared: &mut Shared, request: &Request) -> Answer {
        let Some(ual) = &self.ual else {
            return refuse(Status::WrongState);
        };
        let cell = request.args[0];
        if cell >= u64::from(ual.wait_cells) {
            return refuse(Status::Invalid);
        }
        let Ok(pair) = WakePair::new() else {
            return refuse(Status::NoResources);
        };
        let (waker, sleeper) = pair.split();
        shared.mailbox.send(Message::WaitSocket {
            ual: ual.id,
            cell: cell as u32,
            waker,
        });
        (Reply::new(Status::Ok), vec![sleeper.into_fd()])
    }

    /// Descriptors for sockets, as many as asked for and can be had.
    fn descriptors(&mut self, shared: &mut Shared, request: &Request) -> Answer {
        let Some(ual) = &self.ual else {
            return refuse(Status::WrongState);
        };
        let wished = request.args[0].clamp(1, FDS_MAX as u64) as usize;
        let limit = shared.policy.dtis as usize;
        let Ok((first, fds)) = shared.descriptors.make(shared.epoch, ual.id, wished, limit) else {
            return refuse(Status::NoResources);
        };
        let reply = Reply {
            args: [first, fds.len() as u64, 0],
            ..Reply::new(Status::Ok)
        };
        (reply, fds)
    }

    /// The socket on which the agent asks for connections.
    fn recalls(&mut self, shared: &mut Shared) -> Answer {
        let Some(open) = &self.ual else {
            return refuse(Status::WrongState);
        };
        if shared.bells.contains_key(&open.id) {
            return refuse(Status::WrongState);
        }
        let Ok((ours, theirs)) = Stream::pair() else {
            return refuse(Status::NoResources);
        };
        shared.bells.insert(open.id, ours);
        (Reply::new(Status::Ok), vec![theirs.into_fd()])
    }

    /// Becomes the custodian: for a UAL of this process only.
    fn custody(&mut self, shared: &mut Shared) -> Answer {
        let Some(open) = &mut self.ual else {
            return refuse(Status::WrongState);
        };
        let own = rustix::process::geteuid().as_raw();
        if self.peer.pid != std::process::id() || self.peer.uid != own {
            return refuse(Status::NotPermitted);
        }
        if shared.custodian.is_some() {
            return refuse(Status::WrongState);
        }
        let Ok((custodian, theirs)) = Custodian::new(open.id) else {
            return refuse(Status::NoResources);
        };
        shared.custodian = Some(custodian);
        open.custodian = true;
        shared.open -= 1;
        shared.mailbox.send(Message::Custodian(open.id));
        (Reply::new(Status::Ok), vec![theirs])
    }

    fn capture(&mut self, shared: &mut Shared, request: &Request) -> Answer {
        // Packets of everybody: for the engine's own user and root only.
        let own = rustix::process::geteuid().as_raw();
        if self.peer.uid != 0 && self.peer.uid != own {
            return refuse(Status::NotPermitted);
        }
        let [host, port, snap] = request.args;
        let filter = Filter {
            host: (host != 0).then(|| Ipv4Addr::from((host as u32).to_ne_bytes())),
            port: (port != 0).then_some(port as u16),
            snap: snap.min(65535) as u32,
        };
        let Ok((reader, writer)) = std::io::pipe() else {
            return refuse(Status::NoResources);
        };
        let writer: OwnedFd = writer.into();
        if rustix::io::ioctl_fionbio(&writer, true).is_err() {
            return refuse(Status::NoResources);
        }
        // As large as the system lets it be: the engine skips what does not fit.
        let _ = rustix::pipe::fcntl_setpipe_size(&writer, 1 << 20);
        shared
            .mailbox
            .send(Message::Capture(Capture::new(writer, filter)));
        (Reply::new(Status::Ok), vec![reader.into()])
    }

    /// The socket has closed.
    pub(crate) fn end(self, shared: &mut Shared) {
        if let Some(ual) = self.ual {
            shared.open -= u32::from(!ual.custodian);
            shared.ual_gone(ual.id, self.spread);
        }
    }
}

/// Asks the engine thread for a text.
fn text(shared: &Shared, question: impl FnOnce(Sender<String>) -> Message) -> Answer {
    let (sender, receiver) = channel();
    shared.mailbox.send(question(sender));
    let Ok(text) = receiver.recv_timeout(PATIENCE) else {
        return refuse(Status::TimedOut);
    };
    let made = Memfd::create("sidecore-text", 0, false).and_then(|memfd| {
        let mut file = std::fs::File::from(memfd.into_fd());
        file.write_all(text.as_bytes())?;
        Ok(file)
    });
    match made {
        Ok(file) => (
            Reply {
                args: [text.len() as u64, 0, 0],
                ..Reply::new(Status::Ok)
            },
            vec![file.into()],
        ),
        Err(_) => refuse(Status::NoResources),
    }
}
