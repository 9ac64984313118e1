//! Options about handshakes, the end of connections, and the IP header.

use std::num::NonZeroU8;
use std::time::Duration;

use sidecore_stack::SocketOption;

use super::number::{IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, ip, ipv6, tcp};
use super::options::{int, within};
use super::{Errno, Fd, Sockets};

/// Linux takes -1 for "the default".
fn hops(value: &[u8]) -> Result<Option<NonZeroU8>, Errno> {
    let value = within(value, -1, 255)?;
    match (value, NonZeroU8::new(value as u8)) {
        (-1, _) => Ok(None),
        (_, None) => Err(Errno::EINVAL),
        (_, hops) => Ok(hops),
    }
}

impl Sockets {
    /// Sets one of these; `None` if it is another option.
    pub(super) fn tune(
        &mut self,
        fd: Fd,
        (level, name): (i32, i32),
        value: &[u8],
    ) -> Option<Result<(), Errno>> {
        let of_tcp = self.is_stream(fd);
        let known = match level {
            IPPROTO_TCP => of_tcp && matches!(name, tcp::SYNCNT | tcp::LINGER2 | tcp::DEFER_ACCEPT),
            IPPROTO_IP => matches!(name, ip::TOS | ip::TTL),
            IPPROTO_IPV6 => matches!(name, ipv6::TCLASS | ipv6::UNICAST_HOPS),
            _ => false,
        };
        known.then(|| self.set_tuning(fd, (level, name), value))
    }

    fn set_tuning(&mut self, fd: Fd, which: (i32, i32), value: &[u8]) -> Result<(), Errno> {
        let seconds = |value: i32| (value > 0).then(|| Duration::from_secs(value as u64));
        let values = self.values(fd)?;
        let option = match which {
            (IPPROTO_TCP, tcp::SYNCNT) => {
                values.syn_retries = Some(within(value, 1, 127)? as u8);
                SocketOption::SynRetries(values.syn_retries)
            }
            (IPPROTO_TCP, tcp::LINGER2) => {
                values.fin_wait_2 = seconds(int(value)?);
                SocketOption::FinWait2(values.fin_wait_2)
            }
            (IPPROTO_TCP, _) => {
                values.defer_accept = seconds(int(value)?);
                SocketOption::DeferAccept(values.defer_accept)
            }
            (IPPROTO_IP, ip::TOS) | (IPPROTO_IPV6, ipv6::TCLASS) => {
                // The lower two bits are TCP's.
                values.traffic_class = (within(value, -1, 255)?.max(0) as u8) & 0xfc;
                SocketOption::TrafficClass(values.traffic_class)
            }
            _ => {
                values.hop_limit = hops(value)?;
                SocketOption::HopLimit(values.hop_limit)
            }
        };
        let conn = self.conn_of(fd);
        self.tell(conn, option);
        Ok(())
    }

    /// The value of one of these; `None` if it is another option.
    pub(super) fn tuning(&mut self, fd: Fd, (level, name): (i32, i32)) -> Option<i32> {
        let defaults = self.stack.config().tcp.clone();
        let of_tcp = self.is_stream(fd);
        let values = self.values(fd).ok()?;
        let seconds = |time: Duration| time.as_secs() as i32;
        Some(match (level, name) {
            (IPPROTO_TCP, tcp::SYNCNT) if of_tcp => {
                i32::from(values.syn_retries.unwrap_or(defaults.syn_retries))
            }
            (IPPROTO_TCP, tcp::LINGER2) if of_tcp => {
                seconds(values.fin_wait_2.unwrap_or(defaults.fin_wait_2_timeout))
            }
            (IPPROTO_TCP, tcp::DEFER_ACCEPT) if of_tcp => values.defer_accept.map_or(0, seconds),
            (IPPROTO_IP, ip::TOS) | (IPPROTO_IPV6, ipv6::TCLASS) => i32::from(values.traffic_class),
            (IPPROTO_IP, ip::TTL) | (IPPROTO_IPV6, ipv6::UNICAST_HOPS) => {
                values.hop_limit.map_or(64, |hops| i32::from(hops.get()))
            }
            _ => return None,
        })
    }
}
