mod yaml;

use super::*;
use expect_test::{Expect, expect};
use serde_json::json;

fn check(format: Format, body: &str, expect: Expect) {
    let shown = match parse(body.as_bytes(), format) {
        Ok(decoded) if decoded.problems.is_empty() => decoded.value.to_string(),
        Ok(decoded) => format!("{} {}", decoded.value, decoded.problems.join("; ")),
        Err(error) => error.to_string(),
    };
    expect.assert_eq(&shown);
}

#[test]
fn json_keeps_the_last_duplicate_and_names_it() {
    check(
        Format::Json,
        r#"{"spec":{"i":1,"l":[{"a":1,"a":2}],"i":3},"kind":"A","kind":"B"}"#,
        expect![[
            r#"{"kind":"B","spec":{"i":3,"l":[{"a":2}]}} duplicate field "spec.l[0].a"; duplicate field "spec.i"; duplicate field "kind""#
        ]],
    );
}

#[test]
fn json_numbers_beyond_int64_become_floats() {
    check(
        Format::Json,
        "[9223372036854775807,9223372036854775808,-9223372036854775809,1.0,1e3]",
        expect!["[9223372036854775807,9.223372036854776e+18,-9.223372036854776e+18,1,1000]"],
    );
}

#[test]
fn half_a_surrogate_pair_is_a_replacement_character() {
    check(
        Format::Json,
        r#"{"a":"x\ud83dy","b\udc00":"\ud83d\ude00\\ud800","c":"\ud800\ud83d\ude00"}"#,
        expect![[r#"{"a":"x�y","b�":"😀\\ud800","c":"�😀"}"#]],
    );
}

#[test]
fn a_number_beyond_float64_is_refused_as_in_go() {
    check(
        Format::Json,
        r#"{"a":"-1e500","b":[1.5,-1e400]}"#,
        expect!["json: cannot unmarshal number -1e400 into Go value of type float64"],
    );
}

#[test]
fn json_faults_read_as_in_go() {
    for (body, expect) in [
        ("", expect!["unexpected end of JSON input"]),
        ("{", expect!["unexpected end of JSON input"]),
        (r#"{"a":"#, expect!["unexpected end of JSON input"]),
        ("x", expect!["invalid character 'x' looking for beginning of value"]),
        ("{a:1}", expect!["invalid character 'a' looking for beginning of object key string"]),
        (r#"{"a" 1}"#, expect!["invalid character '1' after object key"]),
        (r#"{"a":1 "b"}"#, expect![[r#"invalid character '"' after object key:value pair"#]]),
        ("[1 2]", expect!["invalid character '2' after array element"]),
        ("{} {}", expect!["invalid character '{' after top-level value"]),
        ("nul!", expect!["invalid character '!' in literal null (expecting 'l')"]),
        ("1.x", expect!["invalid character 'x' after decimal point in numeric literal"]),
        ("-'", expect![[r"invalid character '\'' in numeric literal"]]),
        ("\"a\nb\"", expect![[r"invalid character '\n' in string literal"]]),
        (r#""\q""#, expect!["invalid character 'q' in string escape code"]),
        (r#""\u00g0""#, expect!["invalid character 'g' in \\u hexadecimal character escape"]),
        ("{]", expect!["invalid character ']' looking for beginning of object key string"]),
    ] {
        check(Format::Json, body, expect);
    }
    check(Format::Json, &"[".repeat(100_000), expect!["exceeded max depth"]);
}

/// As kube-apiserver 1.36 reads them.
/// Each was read as U+FFFD.
/// Messages of kube-apiserver 1.36.
#[test]
fn strict_error_lists_duplicates_first() {
    let problems =
        vec!["line 2: key \"x\" already set in map".to_owned(), "unknown field \"foo\"".to_owned()];
    expect![[r#"
        strict decoding error: yaml: unmarshal errors:
          line 2: key "x" already set in map, unknown field "foo""#]]
    .assert_eq(&strict_error(&problems));
}

#[test]
fn problems_are_bounded() {
    let body: Vec<String> = (0..1000).map(|i| format!(r#""a{i}":1,"a{i}":1"#)).collect();
    let body = format!("{{{}}}", body.join(","));
    assert_eq!(parse(body.as_bytes(), Format::Json).unwrap().problems.len(), PROBLEMS_MAX);
    let body = "a: 1\n".repeat(1000);
    assert_eq!(parse(body.as_bytes(), Format::Yaml).unwrap().problems.len(), PROBLEMS_MAX);
}

proptest::proptest! {
    /// Any byte string gives a tree or an error, in both forms.
    #[test]
    fn parsing_never_panics(body in proptest::collection::vec(proptest::arbitrary::any::<u8>(), 0..64)) {
        let _ = parse(&body, Format::Json);
        let _ = parse(&body, Format::Yaml);
    }
    /// JSON parsing agrees with serde_json wherever no member is given twice.
    #[test]
    fn json_text_agrees_with_serde_json(text in "[\\[\\]{}\",:0-9a-e.truefalsn \\\\-]{0,24}") {
        let ours = parse(text.as_bytes(), Format::Json);
        let theirs = serde_json::from_str::<Value>(&text);
        proptest::prop_assert_eq!(ours.is_ok(), theirs.is_ok());
    }
}

#[test]
fn trees_that_take_many_times_their_text_are_refused() {
    let small = r#"{"a":1},"#;
    let body = |n: usize| format!("[{}0]", small.repeat(n));
    assert!(parse(body(150_000).as_bytes(), Format::Json).is_ok());
    let error = parse(body(350_000).as_bytes(), Format::Json).unwrap_err();
    assert!(error.0.starts_with("document takes more than 134217728 bytes of memory"), "{error}");
    let yaml = format!("[{}0]", "{a: 1},".repeat(350_000));
    assert!(parse(yaml.as_bytes(), Format::Yaml).is_err());
}

#[test]
fn problems_with_long_paths_are_few() {
    let key = "k".repeat(100_000);
    let members: Vec<String> = (0..200).map(|i| format!(r#""f{i}":1,"f{i}":2"#)).collect();
    let body = format!(r#"{{"{key}":{{{}}}}}"#, members.join(","));
    let problems = parse(body.as_bytes(), Format::Json).unwrap().problems;
    assert_eq!(problems.len(), 1);
}

#[test]
fn problems_of_a_json_body_come_in_document_order() {
    let schema = crate::builtin::type_schema("apps", "v1", "Deployment").unwrap();
    let body = r#"{"zz":1,"metadata":{"labels":{"b":"1","b":"2"},"foo":1},
        "spec":{"replicas":1,"template":{"spec":{"containers":[
            {"name":"a","yy":1,"name":"b","ports":[{"containerPort":1,"containerPort":2}]},{"xx":{"q":1,"q":2}}]}},
            "replicas":2,"aa":1,"aa":2},"zz":2,"status":{"b":1}}"#;
    expect![[r#"
        unknown field "zz"
        duplicate field "metadata.labels.b"
        unknown field "metadata.foo"
        unknown field "spec.template.spec.containers[0].yy"
        duplicate field "spec.template.spec.containers[0].name"
        duplicate field "spec.template.spec.containers[0].ports[0].containerPort"
        unknown field "spec.template.spec.containers[1].xx"
        duplicate field "spec.replicas"
        unknown field "spec.aa"
        unknown field "status.b""#]]
    .assert_eq(&field_problems(&schema, body.as_bytes()).join("\n"));
}

#[test]
fn numbers_beyond_float_are_refused_where_they_are_read() {
    let body = br#"{"x":1e400,"y":"1e400","z":[-1e999,2]}"#;
    let error = parse(body, Format::Json).unwrap_err().to_string();
    assert_eq!(error, "json: cannot unmarshal number 1e400 into Go value of type float64");
    let value = parse_typed(body, Format::Json).unwrap().value;
    assert_eq!(value, json!({"x": f64::MAX, "y": "1e400", "z": [f64::MIN, 2]}));
    let schema = crate::builtin::type_schema("", "v1", "Pod").unwrap();
    let pod = br#"{"spec":{"priority":1e400}}"#;
    let told = conform_error(&schema, "Pod", pod, Format::Json).unwrap().to_string();
    assert_eq!(
        told,
        "json: cannot unmarshal number 1e400 into Go struct field PodSpec.spec.priority of type int32"
    );
}

#[test]
fn the_first_fault_of_a_text_is_told() {
    let schema = crate::builtin::type_schema("", "v1", "Pod").unwrap();
    let told = |body: &str| {
        conform_error(&schema, "Pod", body.as_bytes(), Format::Json).unwrap().to_string()
    };
    for (body, expect) in [
        (
            r#"{"spec":{"nodeName":1},"metadata":{"name":2}}"#,
            expect![
                "json: cannot unmarshal number into Go struct field PodSpec.spec.nodeName of type string"
            ],
        ),
        (
            r#"{"metadata":{"name":2},"spec":{"nodeName":1}}"#,
            expect![
                "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.name of type string"
            ],
        ),
        // Keys may look like paths.
        (
            r#"{"metadata":{"labels":{"a":"b","a.b":1},"annotations":{"a":2}}}"#,
            expect![
                "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string"
            ],
        ),
        (
            r#"{"spec":{"containers":[{"ports":[{}, {"protocol":[]}],"image":{}}]}}"#,
            expect![
                "json: cannot unmarshal array into Go struct field ContainerPort.spec.containers.ports.protocol of type v1.Protocol"
            ],
        ),
        // What reads its own text ends the reading.
        (
            r#"{"spec":{"nodeName":1},"metadata":{"deletionTimestamp":"x","creationTimestamp":"y"}}"#,
            expect![[
                r#"parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006""#
            ]],
        ),
    ] {
        expect.assert_eq(&told(body));
    }
    let many = (0..1000).map(|i| format!(r#""{i:04}":1"#)).collect::<Vec<_>>().join(",");
    expect!["json: cannot unmarshal number into Go struct field ObjectMeta.metadata.annotations of type string"]
        .assert_eq(&told(&format!(r#"{{"metadata":{{"labels":{{{many}}},"annotations":{{{many}}}}}}}"#)));
}

#[test]
fn types_of_texts_have_their_names() {
    let schema = crate::builtin::type_schema("", "v1", "PersistentVolume").unwrap();
    let told = |body: &str| {
        conform_error(&schema, "PersistentVolume", body.as_bytes(), Format::Json)
            .unwrap()
            .to_string()
    };
    for (spec, expect) in [
        (
            r#""accessModes":1"#,
            expect![
                "json: cannot unmarshal number into Go struct field PersistentVolumeSpec.spec.accessModes of type []v1.PersistentVolumeAccessMode"
            ],
        ),
        (
            r#""accessModes":["a",1]"#,
            expect![
                "json: cannot unmarshal number into Go struct field PersistentVolumeSpec.spec.accessModes of type v1.PersistentVolumeAccessMode"
            ],
        ),
        (
            r#""claimRef":{"uid":1}"#,
            expect![
                "json: cannot unmarshal number into Go struct field ObjectReference.spec.claimRef.uid of type types.UID"
            ],
        ),
        (
            r#""mountOptions":1"#,
            expect![
                "json: cannot unmarshal number into Go struct field PersistentVolumeSpec.spec.mountOptions of type []string"
            ],
        ),
    ] {
        expect.assert_eq(&told(&format!(r#"{{"spec":{{{spec}}}}}"#)));
    }
}

#[test]
fn floats_are_no_integers_of_built_in_kinds() {
    let schema = crate::builtin::type_schema("", "v1", "Service").unwrap();
    let conformed = |ports: &str| {
        let body = format!(r#"{{"metadata":{{"name":"x"}},"spec":{{"ports":[{ports}]}}}}"#);
        let mut value = parse_typed(body.as_bytes(), Format::Json).unwrap().value;
        let error = conform(&schema, "Service", &mut value, &mut Vec::new()).err();
        let written = conform_error(&schema, "Service", body.as_bytes(), Format::Json);
        assert_eq!(error.is_some(), written.is_some(), "{body}");
        written.map_or_else(|| value["spec"]["ports"].to_string(), |error| error.to_string())
    };
    for (number, expect) in [
        (
            "1.0",
            expect![
                "json: cannot unmarshal number 1.0 into Go struct field ServicePort.spec.ports.port of type int32"
            ],
        ),
        (
            "1e0",
            expect![
                "json: cannot unmarshal number 1e0 into Go struct field ServicePort.spec.ports.port of type int32"
            ],
        ),
        (
            "10E-1",
            expect![
                "json: cannot unmarshal number 10E-1 into Go struct field ServicePort.spec.ports.port of type int32"
            ],
        ),
        (
            "99999999999999999999",
            expect![
                "json: cannot unmarshal number 99999999999999999999 into Go struct field ServicePort.spec.ports.port of type int32"
            ],
        ),
        ("-0", expect![[r#"[{"port":80,"targetPort":0},{"port":0,"targetPort":0}]"#]]),
    ] {
        expect.assert_eq(&conformed(&format!(r#"{{"port":80}},{{"port":{number}}}"#)));
    }
    expect!["json: cannot unmarshal number 1.0 into Go struct field ServicePort.spec.ports.targetPort of type int32"]
        .assert_eq(&conformed(r#"{"port":80,"targetPort":1.0}"#));
}

#[test]
fn floats_stay_numbers_where_any_number_may_be() {
    let schema = crate::builtin::type_schema("apps", "v1", "ControllerRevision").unwrap();
    let body = br#"{"revision":1,"data":{"a":1.0,"b":[1e3],"c":0.5}}"#;
    let mut value = parse_typed(body, Format::Json).unwrap().value;
    conform(&schema, "ControllerRevision", &mut value, &mut Vec::new()).unwrap();
    assert_eq!(value["data"], json!({"a": 1, "b": [1000], "c": 0.5}));
}

#[test]
fn places_of_unknown_fields_name_keys_of_maps_or_leave_them_out() {
    let schema = crate::builtin::type_schema("resource.k8s.io", "v1", "ResourceSlice").unwrap();
    for (keys, expected) in [
        (MapKeys::Shown, r#"unknown field "spec.devices[0].attributes.model.x""#),
        (MapKeys::LeftOut, r#"unknown field "spec.devices[0].attributes.x""#),
    ] {
        let mut value =
            json!({"spec": {"devices": [{"name": "d", "attributes": {"model": {"x": 1}}}]}});
        let mut problems = Vec::new();
        let before = Value::Null;
        conform_changed(&schema, "ResourceSlice", &mut value, &before, keys, &mut problems)
            .unwrap();
        assert_eq!(problems, [expected]);
    }
}
