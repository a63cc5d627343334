//! `shardSelector`: lists and watches of a part of a resource.

use crate::custom;
use crate::harness::{Server, config_map};
use serde_json::{Value, json};
use std::collections::BTreeSet;

crate::cases! {
    shards_divide_a_list
    a_shard_of_custom_objects_has_its_members_in_order
    a_watch_sends_what_is_in_its_shard
    a_wrong_shard_is_refused
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const HALVES: [&str; 2] = [
    "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')",
    "shardRange(object.metadata.uid, '0x8000000000000000', '0x10000000000000000')",
];

fn query(path: &str, shard: &str, more: &str) -> String {
    let encoded: String = shard
        .bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' => char::from(byte).to_string(),
            byte => format!("%{byte:02X}"),
        })
        .collect();
    format!("{path}?shardSelector={encoded}{more}")
}
fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().unwrap();
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

async fn shards_divide_a_list(server: Server) {
    let all: BTreeSet<String> = (0..32).map(|n| format!("m{n}")).collect();
    for name in &all {
        server.post(MAPS, config_map(name, "1")).await;
    }
    let mut seen = Vec::new();
    for half in HALVES {
        let answer = server.get(&query(MAPS, half, "")).await;
        let list = answer.json();
        assert_eq!(list["metadata"]["shardInfo"], json!({"selector": half}));
        let whole = names(&list);
        // Pages do not say how many objects of the shard are left.
        let page = server.get(&query(MAPS, half, "&limit=3")).await.json();
        assert_eq!(names(&page), whole[..3]);
        assert!(page["metadata"]["remainingItemCount"].is_null());
        let token = page["metadata"]["continue"].as_str().unwrap();
        let rest = server.get(&query(MAPS, half, &format!("&continue={token}"))).await.json();
        assert_eq!(names(&rest), whole[3..]);
        assert_eq!(rest["metadata"]["shardInfo"]["selector"], half);
        for form in ["Table", "PartialObjectMetadataList"] {
            let accept = format!("application/json;as={form};g=meta.k8s.io;v=v1");
            let list = server.accept(&query(MAPS, half, ""), &accept).await.json();
            assert_eq!(list["metadata"]["shardInfo"]["selector"], half);
        }
        let accept = "application/vnd.kubernetes.protobuf";
        let list = server.accept(&query(MAPS, half, "&limit=1"), accept).await;
        assert!(list.text().contains(half), "its metadata is in protobuf, too");
        seen.extend(whole);
    }
    assert!(seen.len() == all.len() && seen.iter().cloned().collect::<BTreeSet<_>>() == all);
    let both = server.get(&query(MAPS, &HALVES.join("||"), "")).await.json();
    assert_eq!(names(&both).len(), all.len());
    assert_eq!(both["metadata"]["shardInfo"]["selector"], HALVES.join(" || "));
    assert!(server.get(MAPS).await.json()["metadata"].get("shardInfo").is_none());
}

async fn a_shard_of_custom_objects_has_its_members_in_order(server: Server) {
    custom::define(&server).await;
    let object = json!({"apiVersion": "ex.io/v1", "kind": "Foo", "metadata": {"name": "f"}});
    let answer = server.post("/apis/ex.io/v1/namespaces/default/foos", object).await;
    assert_eq!(answer.code, 201, "{}", answer.text());
    let namespaces = HALVES.map(|half| half.replace("uid", "namespace"));
    let mut n_found = 0;
    for shard in &namespaces {
        let answer = server.get(&query("/apis/ex.io/v1/foos", shard, "")).await;
        n_found += names(&answer.json()).len();
        let tail = format!("\"shardInfo\":{{\"selector\":\"{shard}\"}}}}}}\n");
        assert!(answer.text().ends_with(&tail), "{}", answer.text());
    }
    assert_eq!(n_found, 1, "a namespace is in one shard");
}

async fn a_watch_sends_what_is_in_its_shard(server: Server) {
    let mut watches = Vec::new();
    for half in HALVES {
        watches.push(server.watch(&query(MAPS, half, "&watch=true&resourceVersion=0")).await);
    }
    for n in 0..16 {
        server.post(MAPS, config_map(&format!("m{n}"), "1")).await;
    }
    let mut expected = Vec::new();
    for half in HALVES {
        expected.push(names(&server.get(&query(MAPS, half, "")).await.json()));
    }
    let patch = json!({"data": {"k": "2"}});
    for n in 0..16 {
        let path = format!("{MAPS}/m{n}");
        server.patch(&path, "application/merge-patch+json", patch.clone()).await;
        server.delete(&path).await;
    }
    for (names, mut watch) in expected.into_iter().zip(watches) {
        let mut seen = BTreeSet::new();
        for _ in 0..3 * names.len() {
            seen.insert(watch.event().await);
        }
        let types = ["ADDED", "MODIFIED", "DELETED"];
        let all = names.iter().flat_map(|name| types.map(|of| (of.to_owned(), name.clone())));
        assert_eq!(seen, all.collect());
    }
}

async fn a_wrong_shard_is_refused(server: Server) {
    let answer = server.get(&query(MAPS, "shardRange(object.metadata.name, '0x', '0x')", "")).await;
    answer.check_status(
        400,
        "BadRequest",
        "invalid shard selector: unsupported field path \"object.metadata.name\"; supported: object.metadata.uid, object.metadata.namespace",
    );
    let answer = server.get(&query(MAPS, "true", "&watch=true")).await;
    assert_eq!(answer.code, 400);
}
