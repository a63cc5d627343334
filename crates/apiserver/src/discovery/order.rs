//! The members of documents in the order of the reference server's structs.

use bytes::Bytes;
use serde_json::{Map, Value};
use setpoint_object::encode::{Members, push_in_order};

/// The orders. An object has the first one that names all its members; others are sorted by name.
const ORDERS: [&[&str]; 7] = [
    // A document, and a group.
    &[
        "kind",
        "apiVersion",
        "metadata",
        "groupVersion",
        "groups",
        "resources",
        "items",
        "name",
        "versions",
        "preferredVersion",
        "serverAddressByClientCIDRs",
    ],
    &["clientCIDR", "serverAddress"],
    // A version of a group.
    &["groupVersion", "version"],
    &["version", "resources", "freshness"],
    // A resource or subresource of a legacy document, and the kind that a resource answers with.
    &[
        "name",
        "singularName",
        "namespaced",
        "group",
        "version",
        "kind",
        "verbs",
        "shortNames",
        "categories",
        "storageVersionHash",
    ],
    // A resource or subresource of an aggregated document.
    &[
        "resource",
        "subresource",
        "responseKind",
        "scope",
        "singularResource",
        "acceptedTypes",
        "verbs",
        "shortNames",
        "categories",
        "subresources",
    ],
    // `/version`.
    &[
        "major",
        "minor",
        "emulationMajor",
        "emulationMinor",
        "minCompatibilityMajor",
        "minCompatibilityMinor",
        "gitVersion",
        "gitCommit",
        "gitTreeState",
        "buildDate",
        "goVersion",
        "compiler",
        "platform",
    ],
];

/// Encodes a document.
pub(crate) fn to_bytes(document: &Value) -> Bytes {
    let mut out = Vec::new();
    push(&mut out, document);
    out.into()
}

/// Appends a part of a document.
pub(super) fn push(out: &mut Vec<u8>, value: &Value) {
    push_in_order(out, value, &|members| Some(in_order(members)));
}

fn in_order(members: &Map<String, Value>) -> Members<'_> {
    let mut sorted: Members<'_> = members.iter().collect();
    let names_all = |order: &&&[&str]| members.keys().all(|name| order.contains(&&**name));
    match ORDERS.iter().find(names_all) {
        Some(order) => {
            sorted.sort_unstable_by_key(|(name, _)| order.iter().position(|at| *at == **name));
        }
        None => sorted.sort_unstable_by_key(|(name, _)| *name),
    }
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn members_have_the_order_of_their_structs() {
        let text = |value: Value| String::from_utf8(to_bytes(&value).to_vec()).unwrap();
        let resource = json!({
            "kind": "Scale", "version": "v1", "verbs": ["get"], "namespaced": true,
            "singularName": "", "name": "d/scale", "group": "autoscaling",
        });
        let list = json!({
            "resources": [resource], "groupVersion": "apps/v1", "apiVersion": "v1",
            "kind": "APIResourceList",
        });
        assert_eq!(
            text(list),
            r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"apps/v1","resources":[{"name":"d/scale","singularName":"","namespaced":true,"group":"autoscaling","version":"v1","kind":"Scale","verbs":["get"]}]}"#
        );
        let versions = json!([{"version": "v1", "groupVersion": "apps/v1"}]);
        let group = json!({"versions": versions, "name": "apps", "kind": "APIGroup"});
        assert_eq!(
            text(group),
            r#"{"kind":"APIGroup","name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}]}"#
        );
        let version = json!({"freshness": "Current", "version": "v1", "resources": []});
        assert_eq!(text(version), r#"{"version":"v1","resources":[],"freshness":"Current"}"#);
        assert_eq!(text(json!({"z": 1, "a": {"y": 2}})), r#"{"a":{"y":2},"z":1}"#);
    }
}
