//! Each test splits its stream at every position: the split must not change the forwarded bytes.

use super::*;

/// Returns the forwarded bytes of these parts, which arrive one after the other, and the counts.
fn seen(protocol: Protocol, parts: &[&[u8]], lose: bool) -> (Vec<u8>, Seen) {
    let (mut filter, mut all, mut sum) = (Filter::new(protocol), Vec::new(), Seen::default());
    for part in parts {
        let mut bytes = part.to_vec();
        let seen = filter.pass(&mut bytes, lose);
        sum.answers += seen.answers;
        sum.pushes += seen.pushes;
        sum.lost += seen.lost;
        all.append(&mut bytes);
    }
    all.append(&mut filter.rest());
    (all, sum)
}

/// Returns the forwarded bytes of these parts, and the number of lost messages.
fn passed(protocol: Protocol, parts: &[&[u8]], lose: bool) -> (Vec<u8>, u64) {
    let (all, seen) = seen(protocol, parts, lose);
    (all, seen.lost)
}

/// Asserts that the filter forwards exactly the pieces that are not pushed messages.
fn assert_taken_out(protocol: Protocol, pieces: &[(bool, &[u8])]) {
    let stream: Vec<u8> = pieces.iter().flat_map(|(_, bytes)| *bytes).copied().collect();
    let answers = pieces.iter().filter(|(is_push, _)| !is_push);
    let left: Vec<u8> = answers.flat_map(|(_, bytes)| *bytes).copied().collect();
    let pushes = u64::try_from(pieces.iter().filter(|(is_push, _)| *is_push).count()).unwrap();
    let answers = u64::try_from(pieces.len()).unwrap() - pushes;
    for cut in 0..stream.len() {
        let parts = [&stream[..cut], &stream[cut..]];
        let text = String::from_utf8_lossy(parts[0]);
        assert_eq!(passed(protocol, &parts, true), (left.clone(), pushes), "{text}");
        assert_eq!(passed(protocol, &parts, false), (stream.clone(), 0), "{text}");
    }
    let bytes: Vec<&[u8]> = stream.chunks(1).collect();
    assert_eq!(passed(protocol, &bytes, true), (left, pushes));
    assert_eq!(seen(protocol, &bytes, false).1, Seen { answers, pushes, lost: 0 });
}

#[test]
fn redis_loses_messages_in_both_versions() {
    assert_taken_out(
        Protocol::Redis,
        &[
            (false, b"+OK\r\n"),
            (false, b"%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n$-1\r\n"),
            (false, b">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n"),
            (true, b">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$4\r\nb\r\n>\r\n"),
            (false, b"$9\r\n>1\r\nmessa\r\n"),
            (false, b"|1\r\n+ttl\r\n:5\r\n:7\r\n"),
            (true, b">3\r\n$8\r\nsmessage\r\n$1\r\na\r\n$0\r\n\r\n"),
            (true, b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na\r\n"),
            (false, b"*0\r\n"),
            // A list that is the value of a key.
            (false, b"*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nb\r\n"),
            (false, b"-ERR no\r\n"),
        ],
    );
    assert_taken_out(
        Protocol::Redis,
        &[
            (false, b"*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n"),
            (true, b"*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nb\r\n"),
            (false, b"*2\r\n$4\r\npong\r\n$0\r\n\r\n"),
        ],
    );
}

#[test]
fn postgres_loses_notifications() {
    assert_taken_out(
        Protocol::Postgres,
        &[
            (false, b"N"),
            (false, b"R\0\0\0\x08\0\0\0\0"),
            (false, b"N\0\0\0\x05\0"),
            (true, b"A\0\0\0\x0c\0\0\0\x01a\0b\0"),
            (false, b"C\0\0\0\x0bLISTEN\0"),
            (true, b"A\0\0\0\x0c\0\0\0\x01A\0A\0"),
            (false, b"Z\0\0\0\x05I"),
        ],
    );
}

#[test]
fn zookeeper_loses_events() {
    assert_taken_out(
        Protocol::ZooKeeper,
        &[
            // The answer about the session, which may begin like an event.
            (false, b"\0\0\0\x05\xff\xff\xff\xff\0"),
            (false, b"\0\0\0\x04\0\0\0\x01"),
            (true, b"\0\0\0\x06\xff\xff\xff\xff\0\0"),
            (false, b"\0\0\0\x04\xff\xff\xff\xfe"),
            (true, b"\0\0\0\x04\xff\xff\xff\xff"),
        ],
    );
}

#[test]
fn unknown_bytes_pass_with_all_that_follows_them() {
    let push = b">2\r\n$7\r\nmessage\r\n$1\r\na\r\n".as_slice();
    let notice = b"A\0\0\0\x0c\0\0\0\x01a\0b\0".as_slice();
    for (protocol, foreign, behind) in [
        (Protocol::Redis, b"$EOF:0123\r\n".as_slice(), push),
        (Protocol::Redis, b"HTTP/1.1 400", push),
        (Protocol::Postgres, b"S", notice),
        (Protocol::Postgres, b"R\0\0\0\x03", notice),
        (Protocol::ZooKeeper, b"imok", b"\0\0\0\x04\xff\xff\xff\xff"),
    ] {
        let all = [foreign, behind, behind].concat();
        assert_eq!(passed(protocol, &[foreign, behind, behind], true), (all, 0), "{protocol:?}");
    }
}

proptest::proptest! {
    #[test]
    fn whatever_comes_passes_when_nothing_is_lost(
        parts in proptest::collection::vec(proptest::collection::vec(
            proptest::sample::select(b"*>$|%-1239\r\nNRAS\0\xff\x04".as_slice()), 0..20), 0..9),
    ) {
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        for protocol in [Protocol::Redis, Protocol::Postgres, Protocol::ZooKeeper] {
            assert_eq!(passed(protocol, &parts, false), (parts.concat(), 0), "{protocol:?}");
            let (left, lost) = passed(protocol, &parts, true);
            assert!(if lost == 0 { left == parts.concat() } else { left.len() < parts.concat().len() });
        }
    }
}

/// Returns a frame of HTTP/2.
fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, 0, 0, 0, 0, 1], payload].concat()
}

/// Returns a frame with a message of gRPC.
fn message(fields: &[u8]) -> Vec<u8> {
    let length = u32::try_from(fields.len()).unwrap().to_be_bytes();
    frame(0, &[&[0], &length[..], fields].concat())
}

#[test]
fn etcd_loses_the_events_of_watches() {
    // A header of 2 bytes, and a number.
    let answer = message(&[0x0a, 2, 0x18, 5, 0x18, 0xac, 0x02]);
    let created = message(&[0x0a, 0, 0x10, 1, 0x18, 1]);
    let event = message(&[0x0a, 2, 0x18, 5, 0x10, 1, 0x5a, 3, 1, 2, 3]);
    assert_taken_out(
        Protocol::Etcd,
        &[(false, &answer), (true, &event), (false, &created), (true, &event), (false, &answer)],
    );
    // Settings, headers and the first part of a longer message are no messages.
    let part = frame(0, &[0, 0, 0, 0, 9, 0x5a]);
    let stream = [frame(4, b""), frame(1, b"abc"), part].concat();
    let counted = Seen { answers: 1, pushes: 0, lost: 0 };
    assert_eq!(seen(Protocol::Etcd, &[&stream], true), (stream, counted));
    for foreign in [&b"HTTP/1.1 200 OK\r\n"[..], b"\x16\x03\x03\x00\x7a\x02\x00\x00\x76"] {
        assert_eq!(passed(Protocol::Etcd, &[foreign], true), (foreign.to_vec(), 0));
    }
}
