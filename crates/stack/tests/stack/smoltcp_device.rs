//! A device of smoltcp that is two queues. The tests of the whole use this file, too.

use std::collections::VecDeque;

use smoltcp::phy::{self, Device, DeviceCapabilities, Medium};

/// Frames in and out of smoltcp.
#[derive(Default)]
pub(crate) struct Queues {
    pub(crate) incoming: VecDeque<Vec<u8>>,
    pub(crate) outgoing: Vec<Vec<u8>>,
}

pub(crate) struct RxToken(Vec<u8>);
pub(crate) struct TxToken<'a>(&'a mut Vec<Vec<u8>>);

impl phy::RxToken for RxToken {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl phy::TxToken for TxToken<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut frame = vec![0; len];
        let result = f(&mut frame);
        self.0.push(frame);
        result
    }
}

impl Device for Queues {
    type RxToken<'a> = RxToken;
    type TxToken<'a> = TxToken<'a>;

    fn receive(&mut self, _: smoltcp::time::Instant) -> Option<(RxToken, TxToken<'_>)> {
        let frame = self.incoming.pop_front()?;
        Some((RxToken(frame), TxToken(&mut self.outgoing)))
    }

    fn transmit(&mut self, _: smoltcp::time::Instant) -> Option<TxToken<'_>> {
        Some(TxToken(&mut self.outgoing))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.max_transmission_unit = 1514;
        capabilities.medium = Medium::Ethernet;
        capabilities
    }
}
