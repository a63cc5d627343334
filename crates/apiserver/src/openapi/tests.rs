use super::row::{Kind, Sub};
use super::*;
use setpoint_registry::{SchemaLanguage, kind};

fn v3_of(rows: &[Row<'_>], used: &[&'static str]) -> Bytes {
    super::v3_of(rows, used, Texts::PLAIN).flatten().collect()
}
/// The whole of v2, with all rows in one part.
fn v2_in(rows: &[Row<'_>], encoding: Encoding) -> Bytes {
    let part = v2_part(rows, encoding, Texts::PLAIN).flatten().last().unwrap();
    let shared = v2_shared(&roots(rows), &[], encoding, Texts::PLAIN).flatten().last().unwrap();
    v2_whole(vec![part.into(), shared.into()], encoding, Release::PRESENT).flatten().collect()
}
fn v2_of(rows: &[Row<'_>]) -> Bytes {
    v2_in(rows, Encoding::Json)
}

/// Rows of the built-in resources, as in the catalog.
fn builtin() -> Vec<Row<'static>> {
    setpoint_facts::RESOURCES
        .iter()
        .map(|row| Row {
            kind: Kind { group: row.group, version: row.version, kind: row.kind },
            list_kind: format!("{}List", row.kind),
            resource: row.resource,
            namespaced: row.namespaced,
            verbs: row.verbs.to_vec(),
            subresources: row
                .subresources
                .iter()
                .map(|sub| {
                    let (group, version, kind) = sub.kind;
                    Sub {
                        name: sub.name,
                        kind: Kind { group, version, kind },
                        verbs: sub.verbs.to_vec(),
                    }
                })
                .collect(),
            language: SchemaLanguage::GoTypes,
            has_watch_paths: row.serves("watch"),
            returns_deleted: kind::of(row.group, row.kind).is_some_and(|k| k.publishes_deleted()),
            cbor: false,
            open_api: None,
            keeps_unknown_fields: false,
            selectable: Vec::new(),
        })
        .collect()
}

fn of(rows: &[Row<'static>], group: &str, version: &str) -> Vec<Row<'static>> {
    rows.iter()
        .filter(|row| (row.kind.group, row.kind.version) == (group, version))
        .cloned()
        .collect()
}

fn parse(document: &Bytes) -> Value {
    serde_json::from_slice(document).unwrap()
}

/// Checks that every reference in a document is to one of its schemas.
fn check_references(document: &Value) {
    fn collect<'a>(value: &'a Value, out: &mut Vec<&'a str>) {
        match value {
            Value::Object(members) => {
                out.extend(members.get("$ref").and_then(Value::as_str));
                members.values().for_each(|value| collect(value, out));
            }
            Value::Array(items) => items.iter().for_each(|value| collect(value, out)),
            _ => {}
        }
    }
    let mut references = Vec::new();
    collect(document, &mut references);
    assert!(!references.is_empty());
    for reference in references {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
    }
}

#[test]
fn every_reference_leads_to_a_schema_of_the_same_document() {
    let rows = builtin();
    check_references(&parse(&v2_of(&rows)));
    for (group, version) in
        [("", "v1"), ("apps", "v1"), ("autoscaling", "v2"), ("apiextensions.k8s.io", "v1")]
    {
        check_references(&parse(&v3_of(
            &of(&rows, group, version),
            &row::used_kinds(group, version),
        )));
    }
}

#[test]
fn patch_operations_have_the_parameters_that_clients_check() {
    for (document, parameters) in [
        (parse(&v2_of(&builtin())), "/parameters"),
        (parse(&v3_of(&of(&builtin(), "apps", "v1"), &[])), "/parameters"),
    ] {
        let patch =
            &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
        let names: Vec<&str> = patch
            .pointer(parameters)
            .unwrap()
            .as_array()
            .unwrap()
            .iter()
            .filter(|parameter| parameter["in"] == "query")
            .map(|parameter| parameter["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["dryRun", "fieldManager", "fieldValidation", "force"]);
        assert_eq!(patch["x-kubernetes-action"], "patch");
        assert_eq!(
            patch["x-kubernetes-group-version-kind"],
            json!({"group": "apps", "version": "v1", "kind": "Deployment"})
        );
        assert_eq!(patch["operationId"], "patchAppsV1NamespacedDeployment");
        assert_eq!(patch["tags"], json!(["apps_v1"]));
    }
}

#[test]
fn schemas_have_merge_keys_and_strategies() {
    let document = parse(&v3_of(&of(&builtin(), "", "v1"), &[]));
    let schemas = &document["components"]["schemas"];
    let spec = &schemas["io.k8s.api.core.v1.PodSpec"];
    assert_eq!(
        spec["properties"]["containers"],
        json!({
            "items": {"$ref": "#/components/schemas/io.k8s.api.core.v1.Container"}, "type": "array",
            "x-kubernetes-list-map-keys": ["name"], "x-kubernetes-list-type": "map",
            "x-kubernetes-patch-merge-key": "name", "x-kubernetes-patch-strategy": "merge",
        })
    );
    assert_eq!(spec["required"], json!(["containers"]));
    assert_eq!(
        schemas["io.k8s.api.core.v1.ContainerPort"]["properties"]["protocol"],
        json!({"default": "TCP", "enum": ["SCTP", "TCP", "UDP"], "type": "string"})
    );
    assert_eq!(
        schemas["io.k8s.api.core.v1.Pod"]["x-kubernetes-group-version-kind"],
        json!([{"group": "", "kind": "Pod", "version": "v1"}])
    );
    assert_eq!(
        schemas["io.k8s.api.core.v1.PersistentVolumeSpec"]["properties"]["claimRef"],
        json!({
            "allOf": [{"$ref": "#/components/schemas/io.k8s.api.core.v1.ObjectReference"}], "x-kubernetes-map-type": "granular",
        })
    );
}

#[test]
fn schemas_have_the_defaults_and_values_that_the_reference_publishes() {
    let document = parse(&v3_of(&of(&builtin(), "", "v1"), &[]));
    let property = |definition: &str, name: &str| {
        let name = format!("io.k8s.api.core.v1.{definition}/properties/{name}");
        document.pointer(&format!("/components/schemas/{name}")).cloned().unwrap_or_default()
    };
    let meta = "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    assert_eq!(property("Pod", "metadata"), json!({"allOf": [{"$ref": meta}], "default": {}}));
    assert_eq!(property("Container", "name"), json!({"default": "", "type": "string"}));
    assert_eq!(property("Container", "image"), json!({"type": "string"}));
    assert_eq!(property("LocalObjectReference", "name"), json!({"default": "", "type": "string"}));
    assert_eq!(property("ContainerStatus", "ready"), json!({"default": false, "type": "boolean"}));
    let modes = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
    assert_eq!(property("PersistentVolumeSpec", "accessModes")["items"]["enum"], json!(modes));
    let profile = &document["components"]["schemas"]["io.k8s.api.core.v1.AppArmorProfile"];
    assert_eq!(profile["x-kubernetes-unions"][0]["discriminator"], "type");
    let options = &document["components"]["schemas"][schema::DELETE_OPTIONS];
    let kinds = json!([{"group": "", "kind": "DeleteOptions", "version": "v1"}]);
    assert_eq!(options["x-kubernetes-group-version-kind"], kinds);
}

#[test]
fn subresources_that_connect_have_their_options_and_paths() {
    for dialect in [Dialect::V2, Dialect::V3] {
        let rows = of(&builtin(), "", "v1");
        let document = parse(&match dialect {
            Dialect::V2 => v2_of(&rows),
            Dialect::V3 => v3_of(&rows, &[]),
        });
        let item = |path: &str| document["paths"][path].clone();
        let names = |item: &Value| {
            let parameters = item["parameters"].as_array().unwrap().iter();
            parameters.map(|p| p["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let proxy = item("/api/v1/nodes/{name}/proxy/{path}");
        assert_eq!(names(&proxy), ["name", "path", "path"]);
        assert_eq!(proxy["options"]["operationId"], "connectCoreV1OptionsNodeProxyWithPath");
        assert_eq!(proxy["head"]["x-kubernetes-action"], "connect");
        let pods = "/api/v1/namespaces/{namespace}/pods/{name}";
        let exec = names(&item(&format!("{pods}/exec")));
        let options =
            ["command", "container", "name", "namespace", "stderr", "stdin", "stdout", "tty"];
        assert_eq!(exec, options);
        let log = item(&format!("{pods}/log"));
        assert!(names(&log).contains(&"tailLines".to_owned()));
        let answer = match dialect {
            Dialect::V2 => &log["get"]["responses"]["200"]["schema"],
            Dialect::V3 => &log["get"]["responses"]["200"]["content"]["text/plain"]["schema"],
        };
        assert_eq!(answer, &json!({"type": "string"}));
        assert_eq!(item("/api/v1/")["get"]["operationId"], "getCoreV1APIResources");
    }
}

#[test]
fn what_all_operations_of_a_path_take_is_said_once() {
    let names = |parameters: &Value| {
        let parameters = parameters.as_array().into_iter().flatten();
        parameters.map(|p| p["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for dialect in [Dialect::V2, Dialect::V3] {
        let rows = of(&builtin(), "", "v1");
        let document = parse(&match dialect {
            Dialect::V2 => v2_of(&rows),
            Dialect::V3 => v3_of(&rows, &[]),
        });
        let maps = &document["paths"]["/api/v1/namespaces/{namespace}/configmaps"];
        assert_eq!(names(&maps["parameters"]), ["namespace", "pretty"]);
        let create = names(&maps["post"]["parameters"]);
        let written = create.iter().filter(|name| *name != "body");
        assert!(written.eq(&["dryRun", "fieldManager", "fieldValidation"]), "{create:?}");
        let everywhere = &document["paths"]["/api/v1/configmaps"];
        assert_eq!(everywhere["get"].get("parameters"), None);
        assert!(names(&everywhere["parameters"]).contains(&"labelSelector".to_owned()));
        // A body is never shared.
        let bind = &document["paths"]["/api/v1/namespaces/{namespace}/bindings"];
        assert!(!names(&bind["parameters"]).contains(&"body".to_owned()));
        let shared = ["dryRun", "fieldManager", "fieldValidation", "namespace", "pretty"];
        assert_eq!(names(&bind["parameters"]), shared);
    }
}

#[test]
fn operations_are_described() {
    let document = parse(&v3_of(&of(&builtin(), "", "v1"), &[]));
    let check = |path: &str, method: &str, expected: &str| {
        assert_eq!(document["paths"][path][method]["description"], expected, "{path} {method}");
    };
    let pods = "/api/v1/namespaces/{namespace}/pods";
    check(pods, "get", "list or watch objects of kind Pod");
    check(pods, "delete", "delete collection of Pod");
    check("/api/v1/nodes/{name}", "patch", "partially update the specified Node");
    check("/api/v1/nodes/{name}/status", "get", "read status of the specified Node");
    check("/api/v1/nodes/{name}/proxy", "head", "connect HEAD requests to proxy of Node");
    check("/api/v1/", "get", "get available resources");
    check("/api/v1/componentstatuses", "get", "list objects of kind ComponentStatus");
    let evict = &document["paths"][&format!("{pods}/{{name}}/eviction")]["parameters"][3];
    assert_eq!(evict["description"], "name of the Eviction");
    let name = &document["paths"]["/api/v1/nodes/{name}"]["parameters"][0];
    assert_eq!((&name["name"], &name["description"]), (&json!("name"), &json!("name of the Node")));
    let custom = parse(&v3_of(&[widget(&json!({"type": "object"}))], &[]));
    let list = &custom["paths"]["/apis/ex.io/v1/namespaces/{namespace}/widgets"]["get"];
    assert_eq!(list["description"], "list objects of kind Widget");
}

/// The operations on a custom resource's scale are on the resource; what they write is a Scale.
#[test]
fn the_scale_of_a_custom_resource_is_of_its_kind() {
    let scale = Kind { group: "autoscaling", version: "v1", kind: "Scale" };
    let sub = Sub { name: "scale", kind: scale, verbs: vec!["get", "patch", "update"] };
    let row = Row { subresources: vec![sub], ..widget(&json!({"type": "object"})) };
    let document = parse(&v3_of(&[row], &[]));
    let item = &document["paths"]["/apis/ex.io/v1/namespaces/{namespace}/widgets/{name}/scale"];
    let own = json!({"group": "ex.io", "version": "v1", "kind": "Widget"});
    assert_eq!(item["get"]["x-kubernetes-group-version-kind"], own);
    let body = &item["put"]["requestBody"]["content"]["application/json"]["schema"]["$ref"];
    assert_eq!(body, "#/components/schemas/io.k8s.api.autoscaling.v1.Scale");
    let built_in = parse(&v3_of(&of(&builtin(), "apps", "v1"), &[]));
    let path = "/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale";
    let kind = &built_in["paths"][path]["get"]["x-kubernetes-group-version-kind"];
    assert_eq!(kind, &json!({"group": "autoscaling", "version": "v1", "kind": "Scale"}));
}

#[test]
fn operation_ids_follow_the_reference() {
    let document = parse(&v2_of(&builtin()));
    let id = |path: &str, method: &str| {
        document["paths"][path][method]["operationId"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(id("/api/v1/pods", "get"), "listCoreV1PodForAllNamespaces");
    assert_eq!(
        id("/api/v1/namespaces/{namespace}/pods", "delete"),
        "deleteCoreV1CollectionNamespacedPod"
    );
    assert_eq!(
        id("/api/v1/namespaces/{namespace}/pods/{name}/exec", "get"),
        "connectCoreV1GetNamespacedPodExec"
    );
    assert_eq!(
        id("/api/v1/namespaces/{namespace}/pods/{name}/eviction", "post"),
        "createCoreV1NamespacedPodEviction"
    );
    assert_eq!(
        id("/api/v1/watch/namespaces/{namespace}/pods/{name}", "get"),
        "watchCoreV1NamespacedPod"
    );
    assert_eq!(id("/api/v1/watch/pods", "get"), "watchCoreV1PodListForAllNamespaces");
    assert_eq!(
        id("/apis/rbac.authorization.k8s.io/v1/clusterroles/{name}", "get"),
        "readRbacAuthorizationV1ClusterRole"
    );
    assert_eq!(id("/api/v1/namespaces/{name}/finalize", "put"), "replaceCoreV1NamespaceFinalize");
    assert!(document["paths"]["/api/v1/namespaces"].get("delete").is_none());
}

fn widget(open_api: &Value) -> Row<'static> {
    let kind = Kind { group: "ex.io", version: "v1", kind: "Widget" };
    Row {
        kind,
        list_kind: "WidgetList".to_owned(),
        resource: "widgets",
        namespaced: true,
        verbs: vec![
            "delete",
            "deletecollection",
            "get",
            "list",
            "patch",
            "create",
            "update",
            "watch",
        ],
        subresources: vec![Sub { name: "status", kind, verbs: vec!["get", "patch", "update"] }],
        language: SchemaLanguage::OpenApi,
        has_watch_paths: false,
        returns_deleted: false,
        cbor: false,
        open_api: Some(open_api.to_string().into()),
        keeps_unknown_fields: false,
        selectable: vec!["spec.color"],
    }
}

#[test]
fn custom_kinds_are_published_in_full_in_v3_and_simplified_in_v2() {
    let open_api = json!({"type": "object", "required": ["spec", "gone"], "properties": {
        "spec": {"type": "object", "oneOf": [{"required": ["a"]}], "properties": {
            "port": {"x-kubernetes-int-or-string": true}, "color": {"type": "string", "default": "red", "enum": ["red"]},
            "list": {"type": "array"}, "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"a": {"type": "string"}}},
        }},
        "gone": {"type": "string", "nullable": true},
    }});
    let rows = [widget(&open_api)];
    let v3 = parse(&v3_of(&rows, &[]));
    check_references(&v3);
    let kind = &v3["components"]["schemas"]["io.ex.v1.Widget"];
    assert_eq!(
        kind["properties"]["spec"]["properties"]["port"],
        json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]})
    );
    assert_eq!(kind["properties"]["spec"]["oneOf"], open_api["properties"]["spec"]["oneOf"]);
    assert_eq!(kind["properties"]["gone"]["nullable"], true);
    assert_eq!(
        kind["properties"]["metadata"]["allOf"],
        json!([{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}])
    );
    assert_eq!(
        kind["x-kubernetes-group-version-kind"],
        json!([{"group": "ex.io", "kind": "Widget", "version": "v1"}])
    );
    assert_eq!(kind["x-kubernetes-selectable-fields"], json!([{"fieldPath": "spec.color"}]));
    let list = &v3["components"]["schemas"]["io.ex.v1.WidgetList"];
    assert_eq!(
        (&list["description"], &list["required"]),
        (&json!("WidgetList is a list of Widget"), &json!(["items"]))
    );
    let create = &v3["paths"]["/apis/ex.io/v1/namespaces/{namespace}/widgets"]["post"];
    assert_eq!(
        (&create["operationId"], &create["tags"]),
        (&json!("createExIoV1NamespacedWidget"), &json!(["exIo_v1"]))
    );

    let v2 = parse(&v2_of(&rows));
    check_references(&v2);
    let kind = &v2["definitions"]["io.ex.v1.Widget"];
    assert_eq!(
        kind["properties"]["spec"],
        json!({"type": "object", "properties": {
            "port": {"x-kubernetes-int-or-string": true}, "color": {"type": "string", "enum": ["red"]},
            "list": {}, "free": {"x-kubernetes-preserve-unknown-fields": true},
        }})
    );
    assert_eq!((&kind["properties"]["gone"], &kind["required"]), (&json!({}), &json!(["spec"])));
}

#[test]
fn etags_are_uppercase_hex_and_follow_key_and_rows() {
    let tag = etag("api/v1", &[], false, Texts::PLAIN);
    assert_eq!(tag.len(), 128);
    assert!(tag.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_uppercase()));
    assert_ne!(tag, etag("apis/apps/v1", &[], false, Texts::PLAIN));
    assert_eq!(tag, etag("api/v1", &[], false, Texts::PLAIN));
}

#[test]
fn a_kind_without_a_schema_or_with_unknown_fields_is_a_plain_object_in_v2() {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "description": "any"});
    let rows = [widget(&open)];
    let gvk = json!([{"group": "ex.io", "kind": "Widget", "version": "v1"}]);
    let fields = json!([{"fieldPath": "spec.color"}]);
    let bare = json!({"type": "object", "x-kubernetes-group-version-kind": gvk, "x-kubernetes-selectable-fields": fields});
    assert_eq!(parse(&v2_of(&rows))["definitions"]["io.ex.v1.Widget"], bare);
    let v3 = parse(&v3_of(&rows, &[]));
    let kind = &v3["components"]["schemas"]["io.ex.v1.Widget"];
    assert_eq!(
        (&kind["description"], &kind["x-kubernetes-preserve-unknown-fields"]),
        (&json!("any"), &json!(true))
    );
    assert!(kind["properties"]["metadata"].is_object());
    let rows = [Row { open_api: None, ..widget(&open) }];
    assert_eq!(parse(&v2_of(&rows))["definitions"]["io.ex.v1.Widget"], bare);
    assert_eq!(parse(&v3_of(&rows, &[]))["components"]["schemas"]["io.ex.v1.Widget"], bare);
}

#[test]
fn fields_have_the_descriptions_that_explain_shows() {
    let open = json!({"type": "object", "description": "A widget", "properties": {
        "spec": {"type": "object", "description": "What it is", "nullable": true, "properties": {"a": {"type": "string"}}},
        "port": {"x-kubernetes-int-or-string": true, "description": "Where it listens"},
        "template": {"type": "object", "x-kubernetes-embedded-resource": true},
    }});
    let rows = [widget(&open)];
    let v3 = parse(&v3_of(&rows, &[]));
    let v2 = parse(&v2_of(&rows));
    for schemas in [&v3["components"]["schemas"], &v2["definitions"]] {
        let kind = &schemas["io.ex.v1.Widget"];
        assert_eq!(kind["description"], "A widget");
        let about = |name: &str| kind["properties"][name]["description"].as_str().unwrap();
        assert_eq!((about("spec"), about("port")), ("What it is", "Where it listens"));
        assert!(about("apiVersion").starts_with("APIVersion defines"));
        assert!(about("metadata").starts_with("Standard object's metadata"));
        let template = &kind["properties"]["template"];
        assert_eq!(template["required"], json!(["kind", "apiVersion"]));
        let metadata = &schemas["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"];
        let created = &metadata["properties"]["creationTimestamp"]["description"];
        assert!(created.as_str().unwrap().starts_with("CreationTimestamp is a timestamp"));
    }
    assert_eq!(
        v2["definitions"]["io.ex.v1.Widget"]["properties"]["spec"],
        json!({"description": "What it is"})
    );
}

/// Decodes the outermost fields of a message: (number, bytes), without varints.
fn fields(mut message: &[u8]) -> Vec<(u64, &[u8])> {
    fn varint(message: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let (first, rest) = message.split_first().unwrap();
            *message = rest;
            value |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                break;
            }
        }
        value
    }
    let mut out = Vec::new();
    while !message.is_empty() {
        let tag = varint(&mut message);
        match tag & 7 {
            0 => {
                varint(&mut message);
            }
            1 => message = &message[8..],
            _ => {
                let len = usize::try_from(varint(&mut message)).unwrap();
                let (bytes, rest) = message.split_at(len);
                out.push((tag >> 3, bytes));
                message = rest;
            }
        }
    }
    out
}

#[test]
fn protobuf_holds_every_path_and_definition() {
    let rows = builtin();
    let json = parse(&v2_of(&rows));
    let document = v2_in(&rows, Encoding::Protobuf);
    let parts = fields(&document);
    let part = |number| parts.iter().find(|(field, _)| *field == number).unwrap().1;
    assert_eq!(part(1), b"2.0");
    let names = |message: &[u8], field: u64| -> Vec<String> {
        fields(message)
            .into_iter()
            .filter(|(number, _)| *number == field)
            .map(|(_, named)| String::from_utf8(fields(named)[0].1.to_vec()).unwrap())
            .collect()
    };
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let sorted = |mut names: Vec<String>| {
        names.sort();
        names
    };
    assert_eq!(sorted(names(part(8), 2)), keys(&json["paths"]));
    assert_eq!(sorted(names(part(9), 1)), keys(&json["definitions"]));
}

#[test]
fn v3_protobuf_holds_every_path_and_schema() {
    let rows = builtin();
    let text = v3_of(&rows, &[]);
    let json = parse(&text);
    let mut document = protobuf_v3::Document::default();
    protobuf_v3::pieces(&text).into_iter().for_each(|piece| document.add(piece));
    let document = document.into_bytes();
    let of = |message: &[u8], number: u64| -> Vec<Vec<u8>> {
        let parts = fields(message).into_iter();
        parts.filter(|(field, _)| *field == number).map(|(_, bytes)| bytes.to_vec()).collect()
    };
    let only = |message: &[u8], number: u64| {
        let [one] = <[_; 1]>::try_from(of(message, number)).unwrap();
        one
    };
    assert_eq!(only(&document, 1), b"3.0.0");
    let names = |message: &[u8]| -> Vec<String> {
        let named = of(message, 1).into_iter();
        named.map(|named| String::from_utf8(only(&named, 1)).unwrap()).collect()
    };
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&only(&document, 4)), keys(&json["paths"]));
    let components = only(&document, 5);
    let schemas = only(&components, 1);
    assert_eq!(names(&schemas), keys(&json["components"]["schemas"]));
    assert_eq!(names(&only(&components, 7)), ["BearerToken"]);
    // One schema to its leaves.
    let name = "io.k8s.api.core.v1.ConfigMap";
    let named = of(&schemas, 1).into_iter().find(|named| only(named, 1) == name.as_bytes());
    let schema = only(&only(&named.unwrap(), 2), 1);
    assert_eq!(only(&schema, 25), b"object");
    let gvk = only(&schema, 36);
    assert_eq!(only(&gvk, 1), b"x-kubernetes-group-version-kind");
    let yaml = String::from_utf8(only(&only(&gvk, 2), 2)).unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(&yaml).unwrap(),
        json["components"]["schemas"][name]["x-kubernetes-group-version-kind"]
    );
    let properties = of(&only(&schema, 31), 1);
    let property = |name: &str| {
        let found = properties.iter().find(|named| only(named, 1) == name.as_bytes());
        only(found.unwrap(), 2)
    };
    let values = only(&only(&only(&property("data"), 1), 32), 1);
    assert_eq!(only(&only(&values, 1), 25), b"string");
    // This one is a reference with a default.
    let metadata = only(&property("metadata"), 1);
    assert_eq!(
        only(&only(&only(&metadata, 26), 2), 1),
        b"#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    );
    assert_eq!(only(&metadata, 33), b"");
}

#[test]
fn schemas_have_the_known_values_of_texts_while_that_is_a_feature() {
    let claim = "io.k8s.api.core.v1.PersistentVolumeClaimSpec";
    for has_values in [false, true] {
        let texts = Texts { has_values, ..Texts::PLAIN };
        let schema = schema::definition(claim, Dialect::V3, texts);
        let mode = &schema["properties"]["volumeMode"];
        assert_eq!(mode.get("enum").is_some(), has_values, "{mode}");
    }
    let tags = [false, true]
        .map(|has_values| etag("api/v1", &[], false, Texts { has_values, ..Texts::PLAIN }));
    assert_ne!(tags[0], tags[1]);
}
