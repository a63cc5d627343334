#![allow(clippy::unwrap_used, reason = "a test asserts by unwrapping")]

use super::*;
use proptest::prelude::*;

/// A stream of a snapshot, as etcd sends it.
fn stream(blobs: &[&[u8]]) -> Vec<u8> {
    let hash = Sha256::digest(blobs.concat());
    let lines = blobs
        .iter()
        .copied()
        .chain([&hash[..]])
        .map(|blob| format!("{}\n", json!({"result": {"blob": BASE64.encode(blob)}})));
    lines.collect::<String>().into_bytes()
}

fn read(pieces: &[&[u8]]) -> Result<(Vec<u8>, u64), EtcdError> {
    let (mut parts, mut all) = (Parts::default(), Vec::new());
    for piece in pieces {
        all.extend(parts.take("e", piece)?.concat());
    }
    Ok((all, parts.end("e")?))
}

proptest! {
    #[test]
    fn snapshot_is_read_whole_however_it_comes(
        blobs in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..80), 0..5),
        cut in any::<proptest::sample::Index>(),
    ) {
        let blobs: Vec<&[u8]> = blobs.iter().map(Vec::as_slice).collect();
        let stream = stream(&blobs);
        let (head, tail) = stream.split_at(cut.index(stream.len()));
        let (read, n) = read(&[head, tail]).unwrap();
        let hash = Sha256::digest(blobs.concat());
        prop_assert_eq!(&read, &[&blobs.concat()[..], &hash[..]].concat());
        prop_assert_eq!(n, read.len() as u64);
    }
}

#[test]
fn a_snapshot_that_is_cut_or_changed_is_none() {
    let stream = stream(&[b"abc", b"def"]);
    let lines: Vec<&[u8]> = stream.split_inclusive(|byte| *byte == b'\n').collect();
    assert!(read(&lines).is_ok());
    assert!(read(&lines[..2]).is_err(), "without the hash");
    assert!(read(&[lines[0], lines[2]]).is_err(), "without a part");
    assert!(read(&[&stream[..stream.len() - 1]]).is_err(), "within a line");
    let error = b"{\"error\":{\"code\":14,\"message\":\"etcdserver: no leader\"}}\n";
    let refused = read(&[lines[0], error]).unwrap_err().to_string();
    assert_eq!(refused, "e refuses: etcdserver: no leader");
}

#[test]
fn lists_of_members_are_read() {
    let answer = json!({
        "header": {"cluster_id": "7"},
        "members": [
            {"ID": "18446744073709551615", "name": "d-0", "peerURLs": ["http://a:2380"]},
            {"ID": "2", "peerURLs": ["http://b:2380"], "isLearner": true},
        ],
    });
    let read = members("e", &answer).unwrap();
    assert_eq!((read.cluster_id, read.list[0].id), (7, u64::MAX));
    let learner = Listed {
        id: 2,
        name: String::new(),
        peer_urls: vec!["http://b:2380".to_owned()],
        is_learner: true,
    };
    assert_eq!(read.list[1], learner);
    assert!(members("e", &json!({})).is_err());
}

/// Only pauses within the stream had a limit: a member that never began kept the others from being
/// asked.
#[tokio::test(start_paused = true)]
async fn a_member_that_does_not_begin_its_snapshot_is_given_up() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let failed = snapshot(&endpoint, async |_| Ok(())).await.unwrap_err();
    assert!(matches!(failed, EtcdError::Timeout { .. }), "{failed}");
}
