//! Answers in protobuf.

use crate::harness::{Answer, Server, config_map, request};
use serde_json::{Value, json};
use setpoint_schema::decode::{Format, parse};

crate::cases! {
    objects_and_lists_contain_the_same_as_their_json
    discovery_documents_have_the_bytes_of_the_reference
    metadata_only_works_for_custom_resources_too
    failures_are_written_in_protobuf
    watch_frames_start_with_their_length
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

#[track_caller]
fn tree(answer: &Answer) -> Value {
    assert_eq!((answer.code, answer.header("content-type")), (200, PROTOBUF), "{}", answer.text());
    parse(&answer.body, Format::Protobuf).unwrap().value
}

async fn objects_and_lists_contain_the_same_as_their_json(server: Server) {
    for name in ["a", "b"] {
        server.post(MAPS, config_map(name, "1")).await;
    }
    let (path, both) = (format!("{MAPS}/a"), format!("{PROTOBUF},application/json"));
    let json = server.get(&path).await.json();
    let object = tree(&server.accept(&path, &both).await);
    assert_eq!((&object["kind"], &object["apiVersion"]), (&json["kind"], &json["apiVersion"]));
    assert_eq!(object["data"], json["data"]);
    for member in ["name", "uid", "resourceVersion", "creationTimestamp"] {
        assert_eq!(object["metadata"][member], json["metadata"][member], "{member}");
    }
    let json = server.get(&format!("{MAPS}?limit=1")).await.json();
    let list = tree(&server.accept(&format!("{MAPS}?limit=1"), &both).await);
    assert_eq!(list["kind"], "ConfigMapList");
    for member in ["resourceVersion", "continue", "remainingItemCount"] {
        assert_eq!(list["metadata"][member], json["metadata"][member], "{member}");
    }
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    assert_eq!(list["items"][0]["data"], json!({"k": "1"}));
    // A Table has no protobuf message.
    let table = format!("{PROTOBUF};as=Table;v=v1;g=meta.k8s.io");
    assert_eq!(server.accept(MAPS, &table).await.code, 406);
}

/// Bytes that kube-apiserver sends, up to what differs between servers.
async fn discovery_documents_have_the_bytes_of_the_reference(server: Server) {
    for (path, start) in [
        ("/api", &b"k8s\0\x0a\x0f\x0a\0\x12\x0bAPIVersions\x12"[..]),
        ("/api/v1", b"k8s\0\x0a\x13\x0a\0\x12\x0fAPIResourceList\x12"),
        ("/apis", b"k8s\0\x0a\x12\x0a\x02v1\x12\x0cAPIGroupList\x12"),
        (
            "/apis/apps",
            b"k8s\0\x0a\x0e\x0a\x02v1\x12\x08APIGroup\x12\x24\x0a\x04apps\x12\x0d\x0a\x07apps/v1\x12\x02v1\x1a\x0d\x0a\x07apps/v1\x12\x02v1\x1a\0\x22\0",
        ),
    ] {
        let answer = server.accept(path, PROTOBUF).await;
        assert_eq!((answer.code, answer.header("content-type")), (200, PROTOBUF), "{path}");
        assert!(answer.body.starts_with(start), "{path}: {:?}", answer.body);
    }
    // Verbs are a message of their own.
    let binding = b"\x12\x2e\x0a\x08bindings\x10\x01\x1a\x07Binding\x22\x08\x0a\x06create\x32\x07bindingB\0J\0R\0";
    let resources = server.accept("/api/v1", PROTOBUF).await.body;
    assert!(resources.windows(binding.len()).any(|window| window == binding), "{resources:?}");
}

async fn metadata_only_works_for_custom_resources_too(server: Server) {
    crate::custom::define(&server).await;
    server.post(crate::custom::FOOS, crate::custom::foo("a")).await;
    let accept = format!("{PROTOBUF};as=PartialObjectMetadataList;v=v1;g=meta.k8s.io");
    let answer = server.accept(crate::custom::FOOS, &accept).await;
    assert_eq!((answer.code, answer.header("content-type")), (200, PROTOBUF));
    let head = b"k8s\0\x0a\x2b\x0a\x0emeta.k8s.io/v1\x12\x19PartialObjectMetadataList\x12";
    assert_eq!(&answer.body[..head.len()], head);
    // Field 2, an item; in it field 1, its metadata; in it field 1, its name.
    assert!(answer.body.windows(4).any(|window| window == b"\x0a\x01a\x12"));
    let both = format!("{PROTOBUF},application/json");
    let object = server.accept(crate::custom::FOOS, &both).await;
    assert_eq!(object.header("content-type"), "application/json");
}

async fn failures_are_written_in_protobuf(server: Server) {
    let missing = server.accept(&format!("{MAPS}/a"), PROTOBUF).await;
    assert_eq!((missing.code, missing.header("content-type")), (404, PROTOBUF));
    assert!(missing.body.starts_with(b"k8s\0\x0a\x0c\x0a\x02v1\x12\x06Status\x12"));
    assert!(missing.text().contains("configmaps \"a\" not found"));
}

async fn watch_frames_start_with_their_length(server: Server) {
    server.post(MAPS, config_map("a", "1")).await;
    server.post(MAPS, config_map("b", "2")).await;
    let path = format!("{MAPS}?watch=true&resourceVersion=0&timeoutSeconds=1");
    let mut watch = request("GET", &path, "");
    watch.headers_mut().insert("accept", PROTOBUF.parse().unwrap());
    let answer = server.send(watch).await;
    assert_eq!(answer.header("content-type"), format!("{PROTOBUF};stream=watch"));
    let (mut rest, mut names) = (&answer.body[..], Vec::new());
    while let Some((length, tail)) = rest.split_first_chunk::<4>() {
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap();
        let (event, tail) = tail.split_at(length);
        assert!(event.starts_with(b"\x0a\x05ADDED\x12"), "{event:?}");
        let object = event.windows(4).position(|window| window == b"k8s\0").unwrap();
        let object = parse(&event[object..], Format::Protobuf).unwrap().value;
        names.push(format!("{}={}", object["metadata"]["name"], object["data"]["k"]));
        rest = tail;
    }
    assert_eq!(names, [r#""a"="1""#, r#""b"="2""#]);
}
