//! StorageVersions: which versions the servers of a cluster store and read.
use crate::kind::at::{At, check};
use crate::kind::{Kind, NameRule, Report, StatusMeta};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::name;
use setpoint_object::time::Timestamp;
use std::collections::{HashMap, HashSet};

/// StorageVersion.
pub(in crate::kind) static KIND: Kind = Kind {
    names: NameRule::Any,
    name_fault,
    unconditional_update: false,
    validate_status,
    cells: Some(cells),
    rules: "the form of its name; `status`",
    ..Kind::with_status("internal.apiserver.k8s.io", "StorageVersion", StatusMeta::Identity, "{}")
};

/// A name is that of a resource, after its group.
fn name_fault(_: &Value, name: &str) -> Option<String> {
    let Some((group, resource)) = name.rsplit_once('.') else {
        return Some("name must be in the form of <group>.<resource>".to_owned());
    };
    let of_group = name::dns1123_subdomain(group);
    let of_group = of_group.into_iter().map(|fault| format!("the group segment {fault}"));
    let of_resource = name::dns1035_label(resource);
    let of_resource = of_resource.into_iter().map(|fault| format!("the resource segment {fault}"));
    of_group.chain(of_resource).next()
}

fn validate_status(object: &Value, old: Option<&Value>, errors: &mut Report) {
    check(object, old, errors, |at| {
        let status = at.get("status");
        let mut seen = HashSet::new();
        for server in status.each("storageVersions") {
            server.get("apiServerID").unique(&mut seen);
            of_server(&server);
        }
        common(&status);
        conditions(&status);
    });
}

/// What one server stores, reads and serves: it can read what it stores and what it serves.
fn of_server(server: &At<'_, '_>) {
    let id = server.get("apiServerID");
    for fault in name::dns1123_subdomain(id.text()) {
        id.invalid_as(&id.text().into(), fault);
    }
    let encoding = server.get("encodingVersion");
    versioned(&encoding);
    let decodable = server.get("decodableVersions");
    decodable.items().for_each(|version| versioned(&version));
    let is_decodable = |version: &str| decodable.list().iter().any(|known| known == version);
    if !is_decodable(encoding.text()) {
        decodable
            .invalid(format!("decodableVersions must include encodingVersion {}", encoding.text()));
    }
    for served in server.each("servedVersions") {
        versioned(&served);
        if !is_decodable(served.text()) {
            let known: Vec<&str> = server.texts_of("decodableVersions").collect();
            served.invalid(format!(
                "individual served version : {} must be included in decodableVersions : [{}]",
                served.text(),
                known.join(" ")
            ));
        }
    }
}

/// An `apiVersion`.
fn versioned(at: &At<'_, '_>) {
    let faults = faults_of_version(at.text());
    if !faults.is_empty() {
        at.invalid_as(&at.text().into(), faults.join(","));
    }
}
fn faults_of_version(text: &str) -> Vec<String> {
    const EMPTY: &str = "must be non-empty";
    let of = |part: &str, faults: Vec<String>| -> Vec<String> {
        faults.into_iter().map(|fault| format!("{part} part: {fault}")).collect()
    };
    let (group, version) = match text.split_once('/') {
        None => (None, text),
        Some((_, rest)) if rest.contains('/') => {
            return vec!["an apiVersion is a DNS-1035 label, which must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyVersion')".to_owned()];
        }
        Some((group, version)) => (Some(group), version),
    };
    let mut faults = match group {
        None => Vec::new(),
        Some("") => of("group", vec![EMPTY.to_owned()]),
        Some(group) => of("group", name::dns1123_subdomain(group)),
    };
    faults.extend(match version {
        "" => of("version", vec![EMPTY.to_owned()]),
        version => of("version", name::dns1035_label(version)),
    });
    faults
}

/// The version that all servers store, if they agree.
fn common(status: &At<'_, '_>) {
    let servers = status.list_of("storageVersions");
    let encodings: HashSet<&str> =
        servers.iter().map(|server| crate::kind::text(server, "encodingVersion")).collect();
    let actual = match encodings.len() {
        1 => encodings.into_iter().next(),
        _ => None,
    };
    let stated = status.get("commonEncodingVersion");
    match actual {
        None if stated.is_set() => stated.invalid(
            "should be nil if servers do not agree on the same encoding version, or if there is no server reporting the supported versions yet",
        ),
        Some(actual) if !stated.is_set() => {
            stated.invalid(format!("the common encoding version is {actual}"));
        }
        Some(actual) if stated.text() != actual => {
            stated.invalid(format!("the actual common encoding version is {actual}"));
        }
        _ => {}
    }
}

/// Conditions: each type once, with reason and message. Paths are those of the API, which leave out
/// the member.
fn conditions(status: &At<'_, '_>) {
    let mut first = HashMap::new();
    let list = status.with(&status.value["conditions"]);
    for (at, condition) in list.items().enumerate() {
        let kind = condition.get("type");
        if let Some(before) = first.get(kind.text()) {
            kind.invalid(format!(
                "the type of the condition is not unique, it also appears in conditions[{before}]"
            ));
        }
        first.insert(kind.text(), at);
        for member in ["type", "status"] {
            let value = condition.get(member);
            for fault in name::qualified_name(value.text()) {
                value.invalid_as(&value.text().into(), fault);
            }
        }
        condition.get("reason").need();
        condition.get("message").need();
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let servers: Vec<String> = cell::list(object, "status.storageVersions")
        .iter()
        .map(|server| {
            let text = |name: &str| cell::text(server, name);
            format!("{}={}", text("apiServerID"), text("encodingVersion"))
        })
        .collect();
    vec![
        cell::name(object),
        cell::text_or(object, "status.commonEncodingVersion", "<unset>").into(),
        cell::some_of(&servers, 3, ",", "<unset>").into(),
        cell::age(object, now),
    ]
}
