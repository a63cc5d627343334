use super::{conform, conform_custom, conform_metadata};
use crate::node::{Document, Node, NodeId, Property, Scalar, Shape, TypeSchema};
use expect_test::{Expect, expect};
use serde_json::{Value, json};
use std::sync::Arc;

/// A Widget: `spec` has one field of each sort, `status` is always encoded.
fn widget() -> TypeSchema {
    let mut document = Document::default();
    let d = &mut document;
    let scalar =
        |d: &mut Document, shape, scalar| d.push(Node { shape, scalar, ..Node::default() });
    let string = scalar(d, Shape::String, Scalar::Plain);
    let int32 = scalar(d, Shape::Integer, Scalar::Int32);
    let boolean = scalar(d, Shape::Boolean, Scalar::Plain);
    let quantity = scalar(d, Shape::String, Scalar::Quantity);
    let bytes = scalar(d, Shape::String, Scalar::Bytes);
    let time = scalar(d, Shape::String, Scalar::Time);
    let port = scalar(d, Shape::IntOrString, Scalar::Plain);
    let strings = d.push(Node { additional: Some(string), omit_empty: true, ..Node::default() });
    let note = d.push(Node { shape: Shape::String, omit_empty: true, ..Node::default() });
    let plain = d.push(Node { shape: Shape::Boolean, omit_empty: true, ..Node::default() });
    let host_port = d.push(Node {
        shape: Shape::Integer,
        scalar: Scalar::Int32,
        omit_empty: true,
        ..Node::default()
    });
    let datas = d.push(Node { additional: Some(bytes), ..Node::default() });
    let limits = d.push(Node { additional: Some(quantity), ..Node::default() });
    let item = structure(
        d,
        "io.k8s.api.ex.v1.Item",
        &[("hostPort", host_port), ("name", string)],
        &["name"],
    );
    let items = d.push(Node {
        shape: Shape::Array,
        items: Some(item),
        omit_empty: true,
        ..Node::default()
    });
    let empty = structure(d, "io.k8s.api.ex.v1.Empty", &[("medium", string)], &[]);
    let spec = structure(
        d,
        "io.k8s.api.ex.v1.WidgetSpec",
        &[
            ("data", datas),
            ("emptyDir", empty),
            ("hostNetwork", plain),
            ("items", items),
            ("labels", strings),
            ("limits", limits),
            ("note", note),
            ("optional", boolean),
            ("port", port),
            ("replicas", int32),
            ("when", time),
        ],
        &[],
    );
    let count = d.push(Node {
        shape: Shape::Integer,
        scalar: Scalar::Int32,
        always_present: true,
        ..Node::default()
    });
    let status = structure(d, "io.k8s.api.ex.v1.WidgetStatus", &[("count", count)], &[]);
    d.nodes[status.0 as usize].always_present = true;
    let root = structure(d, "io.k8s.api.ex.v1.Widget", &[("spec", spec), ("status", status)], &[]);
    TypeSchema { document: Arc::new(document), root }
}

fn structure(
    document: &mut Document,
    name: &'static str,
    fields: &[(&'static str, NodeId)],
    required: &[&'static str],
) -> NodeId {
    let properties: Vec<_> = fields.iter().map(|(name, id)| Property::new(*name, *id)).collect();
    let is_filled = |property: &&Property| document.nodes[property.id.0 as usize].always_present;
    let filled = properties.iter().filter(is_filled).cloned().collect();
    document.push(Node {
        properties,
        filled,
        required: required.iter().map(|name| (*name).into()).collect(),
        type_name: Some(name.into()),
        ..Node::default()
    })
}

fn check(spec: Value, expect: Expect) {
    let mut value = json!({"spec": spec});
    let mut problems = Vec::new();
    let shown = match conform(&widget(), "Widget", &mut value, &mut problems) {
        Ok(()) if problems.is_empty() => value.to_string(),
        Ok(()) => format!("{value} {}", problems.join(", ")),
        Err(error) => error.to_string(),
    };
    expect.assert_eq(&shown);
}

#[test]
fn unknown_fields_go_and_are_named() {
    check(
        json!({"foo": 1, "items": [{"name": "a", "x": {}}]}),
        expect![[
            r#"{"spec":{"items":[{"name":"a"}]},"status":{"count":0}} unknown field "spec.foo", unknown field "spec.items[0].x""#
        ]],
    );
}

#[test]
fn empty_optional_fields_take_one_form() {
    check(
        json!({"items": [], "labels": {}, "note": "", "hostNetwork": false, "optional": false, "replicas": 0,
            "emptyDir": {}, "limits": null, "when": null}),
        expect![[r#"{"spec":{"emptyDir":{},"optional":false,"replicas":0},"status":{"count":0}}"#]],
    );
    check(
        json!({"items": [{"name": "", "hostPort": 0}], "labels": {"a": null, "b": ""}}),
        expect![[
            r#"{"spec":{"items":[{"name":""}],"labels":{"a":"","b":""}},"status":{"count":0}}"#
        ]],
    );
}

#[test]
fn wrong_types_are_refused_as_in_go() {
    for (spec, expect) in [
        (
            json!({"replicas": "3"}),
            expect![
                "json: cannot unmarshal string into Go struct field WidgetSpec.spec.replicas of type int32"
            ],
        ),
        (
            json!({"replicas": 1.5}),
            expect![
                "json: cannot unmarshal number 1.5 into Go struct field WidgetSpec.spec.replicas of type int32"
            ],
        ),
        (
            json!({"replicas": 5_000_000_000_i64}),
            expect![
                "json: cannot unmarshal number 5000000000 into Go struct field WidgetSpec.spec.replicas of type int32"
            ],
        ),
        (
            json!({"labels": {"a": 1}}),
            expect![
                "json: cannot unmarshal number into Go struct field WidgetSpec.spec.labels of type string"
            ],
        ),
        (
            json!({"items": {}}),
            expect![
                "json: cannot unmarshal object into Go struct field WidgetSpec.spec.items of type []v1.Item"
            ],
        ),
        (
            json!({"items": [{"name": true}]}),
            expect![
                "json: cannot unmarshal bool into Go struct field Item.spec.items.name of type string"
            ],
        ),
        (
            json!("x"),
            expect![
                "json: cannot unmarshal string into Go struct field Widget.spec of type v1.WidgetSpec"
            ],
        ),
        (
            json!({"port": true}),
            expect![
                "json: cannot unmarshal bool into Go struct field WidgetSpec.spec.port of type int32"
            ],
        ),
        (
            json!({"data": {"a": [1, "x"]}}),
            expect![
                "json: cannot unmarshal string into Go struct field WidgetSpec.spec.data of type uint8"
            ],
        ),
        (
            json!({"data": {"a": [256]}}),
            expect![
                "json: cannot unmarshal number 256 into Go struct field WidgetSpec.spec.data of type uint8"
            ],
        ),
        (json!({"data": {"a": "%"}}), expect!["illegal base64 data at input byte 0"]),
        (json!({"data": {"a": "YWJjZA"}}), expect!["illegal base64 data at input byte 4"]),
        (
            json!({"limits": {"cpu": "x"}}),
            expect![
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            ],
        ),
        (
            json!({"when": "x"}),
            expect![[
                r#"parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006""#
            ]],
        ),
        (
            json!({"when": "2020-01-02"}),
            expect![[
                r#"parsing time "2020-01-02" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "T""#
            ]],
        ),
        (
            json!({"when": "2020-01-02T24:00:00Z"}),
            expect![[r#"parsing time "2020-01-02T24:00:00Z": hour out of range"#]],
        ),
        (
            json!({"when": "2020-13-02T00:00:00Z"}),
            expect![[r#"parsing time "2020-13-02T00:00:00Z": month out of range"#]],
        ),
        (
            json!({"when": "2021-02-29T00:00:00Z"}),
            expect![[r#"parsing time "2021-02-29T00:00:00Z": day out of range"#]],
        ),
        (
            json!({"when": "2020-01-02T00:00:00+25:00"}),
            expect![[
                r#"parsing time "2020-01-02T00:00:00+25:00": time zone offset hour out of range"#
            ]],
        ),
        (
            json!({"when": "2020-01-02T00:00:00.Z"}),
            expect![[
                r#"parsing time "2020-01-02T00:00:00.Z" as "2006-01-02T15:04:05Z07:00": cannot parse ".Z" as "Z07:00""#
            ]],
        ),
        (
            json!({"when": "2020-01-02T00:00:00Zx"}),
            expect![[r#"parsing time "2020-01-02T00:00:00Zx": extra text: "x""#]],
        ),
        (
            json!({"when": "9999-12-31T23:59:59-01:00"}),
            expect![[
                r#"parsing time "9999-12-31T23:59:59-01:00": year outside of range [0,9999]"#
            ]],
        ),
    ] {
        check(spec, expect);
    }
}

#[test]
fn scalars_become_canonical() {
    check(
        json!({"limits": {"cpu": "1000m", "memory": 1024}, "when": "2020-01-02T03:04:05.7+01:00", "data": {"a": "YQ=\n=", "b": [], "c": [null, 97]}, "port": "http"}),
        expect![[
            r#"{"spec":{"data":{"a":"YQ==","b":"","c":"AGE="},"limits":{"cpu":"1","memory":"1024"},"port":"http","when":"2020-01-02T02:04:05Z"},"status":{"count":0}}"#
        ]],
    );
}

#[test]
fn metadata_of_custom_resources_is_held_to_object_meta() {
    let mut object =
        json!({"metadata": {"name": "a", "foo": 1, "labels": {}, "creationTimestamp": null}});
    let mut problems = Vec::new();
    conform_metadata(&mut object, &mut problems).unwrap();
    assert_eq!(object, json!({"metadata": {"name": "a"}}));
    assert_eq!(problems, [r#"unknown field "metadata.foo""#]);
    let mut object = json!({"metadata": {"labels": {"a": 1}}});
    expect!["json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string"]
        .assert_eq(&conform_metadata(&mut object, &mut problems).unwrap_err().0);
}

#[test]
fn metadata_of_embedded_resources_is_held_to_object_meta_too() {
    let schema = crate::crd::type_schema(
        &json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "emb": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}}}}),
    );
    let mut problems = Vec::new();
    let mut object = json!({"spec": {"emb": {"metadata": {"name": "a", "zz": 1}, "x": 1}, "y": 1}});
    conform_custom(&schema, &mut object, &mut problems).unwrap();
    assert_eq!(object, json!({"spec": {"emb": {"metadata": {"name": "a"}, "x": 1}}}));
    assert_eq!(problems, [r#"unknown field "spec.y""#, r#"unknown field "spec.emb.metadata.zz""#]);
    let mut object = json!({"spec": {"emb": {"metadata": {"labels": {"a": 1}}}}});
    expect![[r#"spec.emb.metadata: Invalid value: {"labels":{"a":1}}: json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string"#]]
        .assert_eq(&conform_custom(&schema, &mut object, &mut problems).unwrap_err().0);
}

#[test]
fn schemas_inside_schemas_are_held_to_their_type() {
    let schema =
        crate::builtin::type_schema("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
            .unwrap();
    let crd = |inner: Value| json!({"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": {"type": "array", "items": inner}}}]}});
    let mut problems = Vec::new();
    let mut value =
        crd(json!({"type": "string", "readOnly": true, "nullable": false, "properties": null}));
    conform(&schema, "CustomResourceDefinition", &mut value, &mut problems).unwrap();
    assert_eq!(
        value["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["items"],
        json!({"type": "string"})
    );
    // As the reference, which decodes this union by a method of its own and not strictly.
    assert_eq!(problems, Vec::<String>::new());
    let mut value = crd(json!({"type": ["string"]}));
    expect!["json: cannot unmarshal array into Go struct field JSONSchemaProps.spec.versions.schema.openAPIV3Schema.items.type of type string"]
        .assert_eq(&conform(&schema, "CustomResourceDefinition", &mut value, &mut problems).unwrap_err().0);
}

#[test]
fn zero_values_of_many_empty_structs_are_bounded() {
    let schema = crate::builtin::type_schema("", "v1", "Pod").unwrap();
    let pod = |n: usize| json!({"spec": {"containers": vec![json!({}); n]}});
    conform(&schema, "Pod", &mut pod(10_000), &mut Vec::new()).unwrap();
    let error = conform(&schema, "Pod", &mut pod(200_000), &mut Vec::new()).unwrap_err();
    assert_eq!(error.0, "zero values of the object take more than 33554432 bytes");
}

#[test]
fn a_type_that_reads_its_own_text_is_reported_first() {
    check(
        json!({"data": {"a": "%%%"}, "labels": 1, "when": "yesterday"}),
        expect![[
            r#"parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006""#
        ]],
    );
    check(
        json!({"data": {"a": "%%%"}, "labels": 1, "when": "2026-01-01T00:00:00Z"}),
        expect!["illegal base64 data at input byte 0"],
    );
}

#[test]
fn structs_without_fields_and_schemas_that_are_none() {
    let kind = "CustomResourceDefinition";
    let schema = crate::builtin::type_schema("apiextensions.k8s.io", "v1", kind).unwrap();
    let props = json!({"type": "array", "items": "a"});
    let version =
        json!({"subresources": {"status": {"a": 1}}, "schema": {"openAPIV3Schema": props}});
    let mut value = json!({"spec": {"versions": [version]}});
    let mut problems = Vec::new();
    conform(&schema, kind, &mut value, &mut problems).unwrap();
    assert_eq!(problems, [r#"unknown field "spec.versions[0].subresources.status.a""#]);
    let version = &value["spec"]["versions"][0];
    assert_eq!(version["subresources"]["status"], json!({}));
    assert_eq!(version["schema"]["openAPIV3Schema"], json!({"type": "array"}));
}
