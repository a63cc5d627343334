//! Lists that are too large for an answer in one piece.

use crate::harness::{Server, config_map, finish, request};
use serde_json::Value;
use setpoint_schema::protobuf;
use std::io::Read as _;

crate::cases! {
    large_list_is_the_same_in_every_form
    a_user_gets_few_large_lists_at_once
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const PARTIAL: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Larger than the buffers of sockets and windows.
const HUGE_BYTES: usize = 24 << 20;

async fn fill(server: &Server, n: usize, bytes: usize) {
    for at in 0..n {
        let map = config_map(&format!("m-{at:03}"), &"x".repeat(bytes));
        assert_eq!(server.post(MAPS, map).await.code, 201);
    }
}

async fn large_list_is_the_same_in_every_form(server: Server) {
    fill(&server, 60, 8 * 1024).await;
    let list = server.get(MAPS).await;
    assert_eq!((list.code, list.header("content-type")), (200, "application/json"));
    assert!(list.text().ends_with("]}\n"));
    let compact = list.text();
    let list = list.json();
    let items = list["items"].as_array().unwrap();
    assert_eq!(items.len(), 60);
    for item in items {
        let name = item["metadata"]["name"].as_str().unwrap();
        let mut object = server.get(&format!("{MAPS}/{name}")).await.json();
        let members = object.as_object_mut().unwrap();
        members.remove("apiVersion");
        members.remove("kind");
        assert_eq!(object, *item);
    }

    let pretty = server.get(&format!("{MAPS}?pretty=true")).await;
    assert_eq!(pretty.json(), list);
    let pretty = pretty.text();
    // The same members in the same order, indented.
    let bare = |text: &str| text.split_whitespace().collect::<String>();
    assert_eq!(bare(&pretty), bare(&compact));
    for item in items {
        let name = format!("\n        \"name\": {},\n", item["metadata"]["name"]);
        assert!(pretty.contains(&name), "{name}");
    }
    assert_eq!(pretty.lines().filter(|line| *line == "    },").count(), items.len() - 1);
    assert!(pretty.ends_with("\n    }\n  ]\n}"));

    let yaml = server.accept(MAPS, "application/yaml").await;
    assert_eq!(yaml.header("content-type"), "application/yaml");
    assert_eq!(yaml.text(), serde_saphyr::to_string(&list).unwrap());

    let mut zipped = request("GET", MAPS, "");
    zipped.headers_mut().insert("accept-encoding", "gzip".parse().unwrap());
    let zipped = server.send(zipped).await;
    assert_eq!(zipped.header("content-encoding"), "gzip");
    let mut text = String::new();
    flate2::read::GzDecoder::new(&*zipped.body).read_to_string(&mut text).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), list);

    let names = |list: &Value, items: &str, name: &str| -> Vec<Value> {
        let items = list[items].as_array().unwrap();
        items.iter().map(|item| item.pointer(name).unwrap().clone()).collect()
    };
    let expected = names(&list, "items", "/metadata/name");
    let table = server.accept(&format!("{MAPS}?includeObject=Object"), TABLE).await.json();
    assert_eq!(names(&table, "rows", "/cells/0"), expected);
    let partial = server.accept(MAPS, PARTIAL).await.json();
    assert_eq!(names(&partial, "items", "/metadata/name"), expected);

    let bytes = server.accept(MAPS, PROTOBUF).await;
    assert_eq!(bytes.header("content-type"), PROTOBUF);
    assert!(bytes.body == protobuf::object(list.to_string().as_bytes()).unwrap());
}

/// The administrator is in `system:masters`.
async fn a_user_gets_few_large_lists_at_once(server: Server) {
    const OBJECT_BYTES: usize = 512 * 1024;
    fill(&server, HUGE_BYTES / OBJECT_BYTES, OBJECT_BYTES).await;
    let mut unread = Vec::new();
    for _ in 0..4 {
        let stream = server.open(request("GET", MAPS, "")).await;
        assert_eq!(stream.code, 200);
        unread.push(stream);
    }
    let refused = server.get(MAPS).await;
    assert_eq!(refused.header("retry-after"), "1");
    refused.check_status(
        429,
        "TooManyRequests",
        "Too many large answers are being sent, please try again later.",
    );
    // Small lists are answered.
    assert_eq!(
        server.get(&format!("{MAPS}?limit=1&fieldSelector=metadata.name=none")).await.code,
        200
    );
    // A client that reads gets the whole list, and releases its permit.
    let whole = finish(unread.remove(0)).await;
    assert!(whole.body.len() > HUGE_BYTES);
    assert_eq!(server.get(MAPS).await.body, whole.body);
}
