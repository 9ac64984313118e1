//! What TCP knows of a connection, in the words and the order of `ss -ti`, so that the two can be compared.

use serde_json::Value;

/// Of one connection of the engine's document; `None` for sockets that are no connections.
// tidy: long function because it lists every word
pub(super) fn line(connection: &Value) -> Option<String> {
    let info = connection.get("info").filter(|info| info.is_object())?;
    let n = |name: &str| info[name].as_u64().unwrap_or(0);
    let on = |name: &str| info[name].as_bool().unwrap_or(false);
    let text = |name: &str| info[name].as_str().unwrap_or("-");
    let millis = |micros: u64| micros as f64 / 1000.0;
    let mss = n("effective_mss").max(1);
    let segments = |bytes: u64| bytes.div_ceil(mss);
    let mut words = vec![text("congestion").to_owned()];
    let named = [
        ("timestamps", "ts"),
        ("sack", "sack"),
        ("syn_data", "fastopen"),
    ];
    words.extend(
        named
            .iter()
            .filter(|(name, _)| on(name))
            .map(|(_, word)| (*word).to_owned()),
    );
    words.push(format!("wscale:{},{}", n("send_scale"), n("receive_scale")));
    words.push(format!("rto:{}", millis(n("rto_us"))));
    words.push(format!(
        "rtt:{:.3}/{:.3}",
        millis(n("srtt_us")),
        millis(n("rttvar_us"))
    ));
    words.push(format!("ato:{}", millis(n("delayed_ack_us"))));
    words.push(format!("mss:{mss}"));
    words.push(format!("pmtu:{}", connection["mtu"].as_u64().unwrap_or(0)));
    words.push(format!("rcvmss:{}", n("receive_mss")));
    words.push(format!("advmss:{}", n("announced_mss")));
    words.push(format!("cwnd:{}", n("cwnd") / mss));
    if n("ssthresh") < u64::from(u32::MAX) {
        words.push(format!("ssthresh:{}", n("ssthresh") / mss));
    }
    let sent = n("bytes_acked") + n("unacked") + n("bytes_retransmitted");
    let resent = n("retransmissions");
    let counts = [
        ("bytes_sent", sent),
        ("bytes_retrans", n("bytes_retransmitted")),
        ("bytes_acked", n("bytes_acked")),
        ("bytes_received", n("bytes_received")),
        ("lastsnd", connection["last_sent_ms"].as_u64().unwrap_or(0)),
        (
            "lastrcv",
            connection["last_received_ms"].as_u64().unwrap_or(0),
        ),
        ("unacked", segments(n("unacked"))),
        ("sacked", segments(n("sacked"))),
        ("lost", segments(n("lost") + n("resent"))),
        ("backoff", n("attempts")),
        ("notsent", n("bytes_unsent")),
        ("rcv_ooopack", n("out_of_order")),
        ("rcv_space", n("window_hint")),
        ("snd_wnd", n("send_window")),
        ("rcv_wnd", n("receive_window")),
    ];
    // As ss has it: what is 0 is not worth a word.
    let counts = counts.iter().filter(|(_, count)| *count > 0);
    words.extend(counts.map(|(name, count)| format!("{name}:{count}")));
    if resent > 0 {
        words.push(format!("retrans:{}/{resent}", segments(n("resent"))));
    }
    if n("min_rtt_us") > 0 {
        words.push(format!("minrtt:{}", millis(n("min_rtt_us"))));
    }
    Some(words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::line;
    use serde_json::json;

    #[test]
    fn what_is_known_is_told_as_ss_does() {
        let connection = json!({
            "mtu": 1500, "last_sent_ms": 12, "last_received_ms": 0,
            "info": {
                "congestion": "cubic", "timestamps": true, "sack": true, "send_scale": 7, "receive_scale": 8,
                "rto_us": 204_000, "srtt_us": 1_250, "rttvar_us": 500, "delayed_ack_us": 40_000, "effective_mss": 1448,
                "receive_mss": 536, "announced_mss": 1460, "cwnd": 14_480, "ssthresh": u32::MAX, "bytes_acked": 5000,
                "unacked": 3000, "bytes_retransmitted": 1448, "retransmissions": 1, "min_rtt_us": 900,
            },
        });
        let text = line(&connection).unwrap();
        for expected in [
            "cubic ts sack wscale:7,8 rto:204 rtt:1.250/0.500 ato:40 mss:1448 pmtu:1500 rcvmss:536 advmss:1460 cwnd:10",
            "bytes_sent:9448 bytes_retrans:1448 bytes_acked:5000",
            "lastsnd:12 unacked:3",
            "retrans:0/1 minrtt:0.9",
        ] {
            assert!(
                text.contains(expected),
                "{expected:?} is missing in {text:?}"
            );
        }
        assert!(
            !text.contains("ssthresh") && !text.contains("lastrcv"),
            "{text}"
        );
        assert_eq!(line(&json!({ "state": "Listen" })), None);
    }
}
