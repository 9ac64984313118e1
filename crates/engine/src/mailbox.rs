//! Messages between agent and engine thread: rare, so an ordinary channel, and one flag that the loop looks at each turn.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use sidecore_abi::RegionId;
use sidecore_shm::Shared;
use sidecore_sys::wake::{Sleeper, WakePair, Waker};

use crate::capture::Capture;
use crate::ual::NewUal;

/// What the agent tells the engine.
pub(crate) enum Message {
    /// A UAL was opened.
    Open(Box<NewUal>),
    /// A UAL's application is gone. Connections with these numbers have other holders: they go to the custodian, and then it is told so.
    Gone {
        ual: u64,
        /// Other processes may hold what it had.
        spread: bool,
        kept: Vec<u64>,
        done: Option<Sender<()>>,
    },
    /// This UAL carries what several processes hold.
    Custodian(u64),
    /// What this UAL, which is gone, gave to the custodian and is still not attached is for nobody.
    Sweep(u64),
    /// Whether the connection with this number has more than one holder.
    Shared { number: u64, shared: bool },
    /// A region was registered; with queue and cookie when an event answers.
    Region {
        ual: u64,
        id: RegionId,
        memory: Shared,
        answer: Option<(u16, u64)>,
    },
    /// From now on this wait cell is woken by its socket.
    WaitSocket { ual: u64, cell: u32, waker: Waker },
    /// Somebody wants to know; the answer is JSON.
    Stat(Sender<String>),
    /// Somebody wants to know the addresses; the answer is text, ADDRESS/PREFIX a line.
    Addresses(Sender<String>),
    /// Somebody wants packets.
    Capture(Capture),
    /// Close listeners, drain, end.
    Stop,
}

/// What the agent holds, for `stat`: the agent writes, the engine reads.
#[derive(Default)]
pub(crate) struct AgentGauges {
    /// Sockets that it serves, that of who asks included.
    pub(crate) sessions: AtomicUsize,
    /// UALs whose application is there.
    pub(crate) uals: AtomicUsize,
    /// Descriptors of sockets that somebody holds.
    pub(crate) descriptors: AtomicUsize,
}

/// The agent's end. Clones are cheap.
#[derive(Clone)]
pub(crate) struct Mailbox {
    sender: Sender<Message>,
    flag: Arc<AtomicBool>,
    waker: Arc<Waker>,
    pub(crate) gauges: Arc<AgentGauges>,
}

impl Mailbox {
    /// Sends; false when the engine is gone.
    pub(crate) fn send(&self, message: Message) -> bool {
        let sent = self.sender.send(message).is_ok();
        self.flag.store(true, Ordering::Release);
        self.waker.wake();
        sent
    }
}

/// The engine's end.
pub(crate) struct Inbox {
    receiver: Receiver<Message>,
    /// Messages that were taken out too early, oldest first.
    deferred: VecDeque<Message>,
    flag: Arc<AtomicBool>,
    pub(crate) sleeper: Sleeper,
    /// Regions whose ids may be used again: UAL and region.
    pub(crate) regions_gone: Sender<(u64, RegionId)>,
    pub(crate) gauges: Arc<AgentGauges>,
}

/// What the agent gets beside its mailbox.
pub(crate) type RegionsGone = Receiver<(u64, RegionId)>;

/// A pair.
pub(crate) fn pair() -> std::io::Result<(Mailbox, Inbox, RegionsGone)> {
    let (sender, receiver) = channel();
    let (gone_sender, gone) = channel();
    let (waker, sleeper) = WakePair::new()?.split();
    let flag = Arc::new(AtomicBool::new(false));
    let mailbox = Mailbox {
        sender,
        flag: flag.clone(),
        waker: Arc::new(waker),
        gauges: Arc::default(),
    };
    let gauges = mailbox.gauges.clone();
    Ok((
        mailbox,
        Inbox {
            receiver,
            deferred: VecDeque::new(),
            flag,
            sleeper,
            regions_gone: gone_sender,
            gauges,
        },
        gone,
    ))
}

impl Inbox {
    /// Whether something may be there: one load of a line that hardly ever changes.
    #[inline]
    pub(crate) fn may_have_mail(&self) -> bool {
        self.has_new_mail() || !self.deferred.is_empty()
    }

    /// Whether something came since [`Self::clear_flag`].
    #[inline]
    pub(crate) fn has_new_mail(&self) -> bool {
        self.flag.load(Ordering::Acquire)
    }

    /// Keeps a message for the next [`Self::take`] but those before it.
    pub(crate) fn defer(&mut self, message: Message) {
        self.deferred.push_back(message);
    }

    /// Begins taking messages: what is sent from here on sets the flag again.
    pub(crate) fn clear_flag(&self) {
        // An exchange, to see what was sent before the flag that is taken away here.
        self.flag.swap(false, Ordering::AcqRel);
    }

    /// The next message.
    pub(crate) fn take(&mut self) -> Option<Message> {
        self.deferred.pop_front().or_else(|| self.take_new())
    }

    /// The next message that was not deferred.
    pub(crate) fn take_new(&mut self) -> Option<Message> {
        self.receiver.try_recv().ok()
    }
}
