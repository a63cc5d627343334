use super::{Approval, approval_of, name_fault, validate_definition};
use expect_test::{Expect, expect};
use serde_json::{Value, json};
use setpoint_object::field::{Error, Path};

mod expressions;
mod schema;

fn crd() -> Value {
    json!({
        "metadata": {"name": "foos.ex.io"},
        "spec": {
            "group": "ex.io", "scope": "Namespaced",
            "names": {"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"},
            "conversion": {"strategy": "None"},
            "versions": [version("v1", json!({"spec": {"type": "object", "properties": {"color": {"type": "string"}, "n": {"type": "integer"}}}}))],
        },
        "status": {"storedVersions": ["v1"]},
    })
}

fn version(name: &str, properties: Value) -> Value {
    json!({"name": name, "served": true, "storage": name == "v1", "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}}})
}

#[test]
fn what_is_stored_with_a_fault_may_stay() {
    let fault = |change: (&str, Value), before: (&str, Value)| {
        show(&validate_definition(&changed(&[change]), Some(&changed(&[before]))))
    };
    let group = ("/spec/group", json!("ex.k8s.io"));
    let approved = |text: &str| json!({"name": "foos.ex.io", "annotations": {"api-approved.kubernetes.io": text}});
    let both = |metadata: Value| changed(&[group.clone(), ("/metadata", metadata)]);
    let missing = changed(std::slice::from_ref(&group));
    assert_eq!(show(&validate_definition(&missing, Some(&missing))), "");
    assert!(!validate_definition(&missing, Some(&both(approved("unapproved")))).is_empty());
    assert_eq!(show(&validate_definition(&both(approved("x")), Some(&both(approved("y"))))), "");

    let keeps = ("/spec/preserveUnknownFields", json!(true));
    assert_eq!(fault(keeps.clone(), keeps.clone()), "");
    let text = fault(keeps, ("/spec/preserveUnknownFields", json!(false)));
    assert!(
        text.starts_with("spec.preserveUnknownFields: Invalid value: true: cannot set to true")
    );
    let text = faults(&[("/spec/versions", Value::Null), ("/status", json!({}))]);
    assert!(text.contains("spec.versions: Invalid value: null: must have exactly one"), "{text}");
    let text = faults(&[("/spec/versions", json!([])), ("/status", json!({}))]);
    assert!(text.contains("spec.versions: Invalid value: []: must have exactly one"), "{text}");
}

#[test]
fn a_version_has_the_status_of_the_first_one_of_its_name() {
    let of = |name: &str, has_status: bool, n: u32| {
        let mut version = version(name, json!({"a": {"type": "string"}}));
        version["schema"]["openAPIV3Schema"]["minProperties"] = n.into();
        if has_status {
            version["subresources"] = json!({"status": {}});
        }
        version
    };
    let root = |versions: [Value; 3]| {
        let text = faults(&[("/spec/versions", json!(versions))]);
        let lines = text.lines().filter(|line| line.contains("fields are allowed at the root"));
        lines.filter_map(|line| line.split(':').next()).map(str::to_owned).collect::<Vec<_>>()
    };
    let schema = |n: usize| format!("spec.versions[{n}].schema.openAPIV3Schema");
    assert_eq!(
        root([of("v1", false, 1), of("v2", true, 2), of("v2", false, 3)]),
        [schema(1), schema(2)]
    );
    assert!(root([of("v1", false, 1), of("v2", false, 2), of("v2", true, 3)]).is_empty());
}

/// In quadratic time this would take many minutes.
#[test]
fn a_definition_of_many_versions_is_validated() {
    // None is stored: the error shows all.
    let versions: Value = (0..100_000).map(|n| json!({"name": format!("v{n}")})).collect();
    // One that is stored: a new one may not have so many.
    let stored = changed(&[("/spec/versions", versions.clone())]);
    assert_eq!(show(&validate_definition(&stored, Some(&stored))), "");
    check(
        &[("/spec/versions", versions)],
        expect!["spec.versions: Too many: 100000: must have at most 1000 items"],
    );
    let names: Value = (0..1001).map(|n| format!("a{n}")).collect();
    check(
        &[("/spec/names/shortNames", names.clone()), ("/spec/names/categories", names)],
        expect![[r#"
            spec.names.shortNames: Too many: 1001: must have at most 1000 items
            spec.names.categories: Too many: 1001: must have at most 1000 items"#]],
    );
}

#[test]
fn a_stored_schema_without_structure_may_stay_until_it_gets_an_extension() {
    let schema = |member: &str, value: Value| {
        let mut schema = json!({"type": "object", "properties": {"a": {}}});
        schema[member] = value;
        changed(&[
            ("/spec/preserveUnknownFields", json!(true)),
            ("/spec/versions/0/schema/openAPIV3Schema", schema),
        ])
    };
    let old = schema("description", json!("x"));
    assert_eq!(show(&validate_definition(&schema("description", json!("y")), Some(&old))), "");
    for (extension, value) in [
        ("x-kubernetes-validations", json!([{"rule": "has(self.a)"}])),
        ("x-kubernetes-preserve-unknown-fields", json!(true)),
    ] {
        let errors = validate_definition(&schema(extension, value), Some(&old));
        let expected = "spec.validation.openAPIV3Schema.properties[a].type: Required value: must not be empty for specified object fields";
        assert_eq!(show(&errors), expected, "{extension}");
    }
    let mut pruning = old.clone();
    pruning["spec"]["preserveUnknownFields"] = false.into();
    assert_ne!(show(&validate_definition(&pruning, Some(&old))), "");
}

/// Sets members of the definition by pointer (null removes) and shows what is wrong with it.
fn check(changes: &[(&str, Value)], expect: Expect) {
    expect.assert_eq(&faults(changes));
}

/// What is wrong with the definition after these changes, a fault per line.
fn faults(changes: &[(&str, Value)]) -> String {
    let crd = changed(changes);
    let name = crd["metadata"]["name"].as_str().unwrap();
    let fault = name_fault(&crd, name)
        .map(|detail| Error::invalid(Path::new("metadata.name"), &name.into(), detail));
    let errors: Vec<_> = fault.into_iter().chain(validate_definition(&crd, None)).collect();
    show(&errors)
}

fn changed(changes: &[(&str, Value)]) -> Value {
    let mut crd = crd();
    for (pointer, value) in changes {
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        match crd.pointer_mut(parent).unwrap() {
            Value::Object(members) if value.is_null() => drop(members.remove(name)),
            Value::Object(members) => drop(members.insert(name.to_owned(), value.clone())),
            Value::Array(items) => items.push(value.clone()),
            _ => unreachable!(),
        }
    }
    crd
}

fn show(errors: &[setpoint_object::field::Error]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// The property `x` of `spec` in the only version has this schema.
fn check_property(schema: Value, expect: Expect) {
    check(&[("/spec/versions/0/schema/openAPIV3Schema/properties/x", schema)], expect);
}

#[test]
fn a_plain_definition_is_valid() {
    check(&[], expect![""]);
}

#[test]
fn names_and_scope() {
    check(
        &[("/metadata/name", json!("foo.ex.io"))],
        expect![[
            r#"metadata.name: Invalid value: "foo.ex.io": must be spec.names.plural+"."+spec.group"#
        ]],
    );
    check(
        &[("/spec/group", json!("ex")), ("/metadata/name", json!("foos.ex"))],
        expect![[r#"spec.group: Invalid value: "ex": should be a domain with at least one dot"#]],
    );
    check(
        &[("/spec/scope", json!("Foo"))],
        expect![[
            r#"spec.scope: Unsupported value: "Foo": supported values: "Cluster", "Namespaced""#
        ]],
    );
    check(&[("/spec/scope", Value::Null)], expect!["spec.scope: Required value"]);
    check(
        &[("/spec/names/listKind", json!("Foo"))],
        expect![[
            r#"spec.names.listKind: Invalid value: "Foo": kind and listKind may not be the same"#
        ]],
    );
    check(
        &[("/spec/names/kind", json!("F_o"))],
        expect![[
            r#"spec.names.kind: Invalid value: "F_o": may have mixed case, but should otherwise match: a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"#
        ]],
    );
    check(
        &[("/spec/names/shortNames", json!(["A"]))],
        expect![[
            r#"spec.names.shortNames[0]: Invalid value: "A": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"#
        ]],
    );
}

#[test]
fn protected_groups_need_approval() {
    let protected = |annotation: Option<&str>| {
        let mut changes =
            vec![("/spec/group", json!("x.k8s.io")), ("/metadata/name", json!("foos.x.k8s.io"))];
        if let Some(text) = annotation {
            changes.push(("/metadata/annotations", json!({"api-approved.kubernetes.io": text})));
        }
        changes
    };
    check(
        &protected(None),
        expect![[
            r#"metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval annotation "api-approved.kubernetes.io", see https://github.com/kubernetes/enhancements/pull/1111"#
        ]],
    );
    check(
        &protected(Some("blah")),
        expect![[
            r#"metadata.annotations[api-approved.kubernetes.io]: Invalid value: "blah": protected groups must have approval annotation "api-approved.kubernetes.io" with either a URL or a reason starting with "unapproved", see https://github.com/kubernetes/enhancements/pull/1111"#
        ]],
    );
    for approved in ["unapproved, test", "unapprovedx", "https://x/1", "https://x", "x://y"] {
        check(&protected(Some(approved)), expect![""]);
    }
    // No scheme, no host, or no URL.
    for text in ["https:///x", "//x/y", "http://a b", "foo bar://x", "http://[::1", "/x", "x:y"] {
        let definition = changed(&protected(Some(text)));
        assert_eq!(approval_of(&definition), Approval::Invalid(text.to_owned()));
    }
    assert_eq!(approval_of(&changed(&protected(Some("")))), Approval::Missing);
}

#[test]
fn versions() {
    check(
        &[("/spec/versions/-", version("v1", json!({})))],
        expect![[r#"
            spec.versions: Invalid value: [{"AdditionalPrinterColumns":null,"Deprecated":false,"DeprecationWarning":null,"Name":"v1","Schema":{"openAPIV3Schema":{"properties":{"spec":{"properties":{"color":{"type":"string"},"n":{"type":"integer"}},"type":"object"}},"type":"object"}},"SelectableFields":null,"Served":true,"Storage":true,"Subresources":null},{"AdditionalPrinterColumns":null,"Deprecated":false,"DeprecationWarning":null,"Name":"v1","Schema":{"openAPIV3Schema":{"properties":{},"type":"object"}},"SelectableFields":null,"Served":true,"Storage":true,"Subresources":null}]: must contain unique version names
            spec.versions: Invalid value: [{"AdditionalPrinterColumns":null,"Deprecated":false,"DeprecationWarning":null,"Name":"v1","Schema":{"openAPIV3Schema":{"properties":{"spec":{"properties":{"color":{"type":"string"},"n":{"type":"integer"}},"type":"object"}},"type":"object"}},"SelectableFields":null,"Served":true,"Storage":true,"Subresources":null},{"AdditionalPrinterColumns":null,"Deprecated":false,"DeprecationWarning":null,"Name":"v1","Schema":{"openAPIV3Schema":{"properties":{},"type":"object"}},"SelectableFields":null,"Served":true,"Storage":true,"Subresources":null}]: must have exactly one version marked as storage version"#]],
    );
    check(
        &[("/spec/versions/0/storage", json!(false)), ("/status/storedVersions", Value::Null)],
        expect![[r#"
            spec.versions: Invalid value: [{"AdditionalPrinterColumns":null,"Deprecated":false,"DeprecationWarning":null,"Name":"v1","Schema":null,"SelectableFields":null,"Served":true,"Storage":false,"Subresources":null}]: must have exactly one version marked as storage version
            status.storedVersions: Invalid value: null: must have at least one stored version"#]],
    );
    check(
        &[("/spec/versions/0/schema", Value::Null)],
        expect!["spec.versions[0].schema.openAPIV3Schema: Required value"],
    );
    check(
        &[("/spec/versions/0/deprecationWarning", json!("x"))],
        expect![[
            r#"spec.versions[0].deprecationWarning: Invalid value: "x": can only be set for deprecated versions"#
        ]],
    );
    check(
        &[
            ("/spec/versions/0/deprecated", json!(true)),
            ("/spec/versions/0/deprecationWarning", json!("a\u{1}")),
        ],
        expect![[
            r#"spec.versions[0].deprecationWarning: Invalid value: "a\x01": must only contain printable UTF-8 characters; non-printable character found at index 1"#
        ]],
    );
    // The index counts bytes. What has no width is not printable, what was no UTF-8 is.
    check(
        &[
            ("/spec/versions/0/deprecated", json!(true)),
            ("/spec/versions/0/deprecationWarning", json!("é\u{fffd}\u{200b}")),
        ],
        expect![[
            r#"spec.versions[0].deprecationWarning: Invalid value: "é�\u200b": must only contain printable UTF-8 characters; non-printable character found at index 5"#
        ]],
    );
    check(
        &[
            ("/spec/versions/0/deprecated", json!(true)),
            ("/spec/versions/0/deprecationWarning", json!("")),
        ],
        expect![[
            r#"spec.versions[0].deprecationWarning: Invalid value: "": must not be an empty string"#
        ]],
    );
    // A version that is not deprecated has no other fault.
    let long = "é".repeat(129);
    for (deprecated, detail) in [
        (true, "must be <= 256 characters long"),
        (false, "can only be set for deprecated versions"),
    ] {
        let changes = [
            ("/spec/versions/0/deprecated", json!(deprecated)),
            ("/spec/versions/0/deprecationWarning", json!(long)),
        ];
        let expected =
            format!("spec.versions[0].deprecationWarning: Invalid value: \"{long}\": {detail}");
        assert_eq!(faults(&changes), expected);
    }
    check(
        &[("/status/storedVersions", json!(["v0"]))],
        expect![[
            r#"status.storedVersions[0]: Invalid value: "v0": missing from spec.versions; v0 was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in v0 and removes v0 from status.storedVersions"#
        ]],
    );
    check(
        &[("/spec/preserveUnknownFields", json!(true))],
        expect![
            "spec.preserveUnknownFields: Invalid value: true: cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        ],
    );
}

#[test]
fn errors_point_at_the_lifted_place_unless_versions_differ() {
    let bad = json!({"x": {"type": "array"}});
    check(
        &[("/spec/versions/0/schema/openAPIV3Schema/properties", bad.clone())],
        expect![
            "spec.validation.openAPIV3Schema.properties[x].items: Required value: must be specified"
        ],
    );
    check(
        &[("/spec/versions/-", version("v2", bad))],
        expect![
            "spec.versions[1].schema.openAPIV3Schema.properties[x].items: Required value: must be specified"
        ],
    );
}

#[test]
fn columns_scale_and_selectable_fields() {
    let version = "/spec/versions/0";
    check(
        &[(
            &format!("{version}/additionalPrinterColumns"),
            json!([{"type": "foo", "format": "bar", "jsonPath": "spec.x"}]),
        )],
        expect![[r#"
        spec.additionalPrinterColumns[0].name: Required value
        spec.additionalPrinterColumns[0].type: Invalid value: "foo": must be one of boolean,date,integer,number,string
        spec.additionalPrinterColumns[0].format: Invalid value: "bar": must be one of byte,date,date-time,double,float,int32,int64,password
        spec.additionalPrinterColumns[0].JSONPath: Invalid value: "spec.x": must be a simple json path starting with ."#]],
    );
    check(
        &[(
            &format!("{version}/subresources"),
            json!({"scale": {"specReplicasPath": "spec.replicas", "statusReplicasPath": ".spec.x", "labelSelectorPath": ".x"}}),
        )],
        expect![[r#"
        spec.subresources.scale.specReplicasPath: Invalid value: "spec.replicas": must be a simple json path starting with .
        spec.subresources.scale.statusReplicasPath: Invalid value: ".spec.x": should be a json path under .status
        spec.subresources.scale.labelSelectorPath: Invalid value: ".x": should be a json path under either .spec or .status"#]],
    );
    let fields =
        [".spec.color", ".spec.color", ".spec.nope", "spec.n", ".", ".spec[0]", ".spec", ""];
    let fields: Vec<Value> = fields.iter().map(|path| json!({"jsonPath": path})).collect();
    check(
        &[(&format!("{version}/selectableFields"), json!(fields))],
        expect![[r#"
        spec.selectableFields[1].jsonPath: Duplicate value: ".spec.color"
        spec.selectableFields[2].jsonPath: Invalid value: ".spec.nope": is an invalid path: does not refer to a valid field
        spec.selectableFields[3].jsonPath: Invalid value: "spec.n": is an invalid path: expected [ or . but got: spec
        spec.selectableFields[4].jsonPath: Invalid value: ".": is an invalid path: unexpected end of JSON path
        spec.selectableFields[5].jsonPath: Invalid value: ".spec[0]": is an invalid path: array notation is not allowed
        spec.selectableFields[6].jsonPath: Invalid value: ".spec": must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.
        spec.selectableFields[7].jsonPath: Required value"#]],
    );
}

#[test]
fn selectable_fields_lead_through_maps_of_schemas_without_properties() {
    let map = json!({"type": "object", "additionalProperties": {"type": "string"}});
    check(
        &[
            ("/spec/versions/0/schema/openAPIV3Schema/properties/spec", map),
            ("/spec/versions/0/selectableFields", json!([{"jsonPath": ".spec.any"}])),
        ],
        expect![""],
    );
}

#[test]
fn selectable_fields_are_read_member_by_member() {
    let root = "/spec/versions/0/schema/openAPIV3Schema/properties";
    let text = json!({"type": "string"});
    let fields = [
        ".kind",
        ".metadata.name",
        ".metadata.uid",
        ".nope[0]",
        ".spec.",
        ".spec..color",
        ".kind]",
    ];
    let fields: Vec<Value> = fields.iter().map(|path| json!({"jsonPath": path})).collect();
    check(
        &[
            (&format!("{root}/kind"), text.clone()),
            (&format!("{root}/metadata"), json!({"type": "object", "properties": {"name": text}})),
            ("/spec/versions/0/selectableFields", json!(fields)),
        ],
        expect![[r#"
        spec.selectableFields[1].jsonPath: Invalid value: ".metadata.name": must not point to fields in metadata
        spec.selectableFields[2].jsonPath: Invalid value: ".metadata.uid": is an invalid path: does not refer to a valid field
        spec.selectableFields[3].jsonPath: Invalid value: ".nope[0]": is an invalid path: does not refer to a valid field
        spec.selectableFields[4].jsonPath: Invalid value: ".spec.": is an invalid path: unexpected end of JSON path
        spec.selectableFields[5].jsonPath: Invalid value: ".spec..color": is an invalid path: does not refer to a valid field
        spec.selectableFields[6].jsonPath: Invalid value: ".kind]": is an invalid path: expected [ or . but got: ]"#]],
    );
}

#[test]
fn a_status_subresource_limits_the_root() {
    let version = "/spec/versions/0";
    let errors = validate_definition(
        &changed(&[
            (&format!("{version}/subresources"), json!({"status": {}})),
            (&format!("{version}/schema/openAPIV3Schema/minProperties"), json!(1)),
        ]),
        None,
    );
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].path.text(), "spec.validation.openAPIV3Schema");
    assert!(errors[0].detail.starts_with("only [Description Type Format Title Maximum") && errors[0].detail.ends_with("XPreserveUnknownFields XValidations] fields are allowed at the root of the schema if the status subresource is enabled"));
}

#[test]
fn conversion() {
    let with =
        |conversion: Value, expect: Expect| check(&[("/spec/conversion", conversion)], expect);
    with(
        json!({"strategy": "Foo"}),
        expect![[
            r#"spec.conversion.strategy: Unsupported value: "Foo": supported values: "None", "Webhook""#
        ]],
    );
    with(
        json!({"strategy": "None", "webhook": {"clientConfig": {"url": "https://a"}, "conversionReviewVersions": ["v1"]}}),
        expect![[r#"
        spec.conversion.webhookClientConfig: Forbidden: should not be set when strategy is not set to Webhook
        spec.conversion.conversionReviewVersions: Forbidden: should not be set when strategy is not set to Webhook"#]],
    );
    with(
        json!({"strategy": "Webhook"}),
        expect![[r#"
        spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook
        spec.conversion.conversionReviewVersions: Required value"#]],
    );
    let hook = |config: Value, versions: Value| json!({"strategy": "Webhook", "webhook": {"clientConfig": config, "conversionReviewVersions": versions}});
    with(
        hook(json!({}), json!(["v1"])),
        expect![
            "spec.conversion.webhookClientConfig: Required value: exactly one of url or service is required"
        ],
    );
    with(
        hook(json!({"url": "http://a/b?c#d"}), json!(["v2", "v2"])),
        expect![[r#"
        spec.conversion.webhookClientConfig.url: Invalid value: "http": 'https' is the only allowed URL scheme; desired format: https://host[/path]
        spec.conversion.webhookClientConfig.url: Invalid value: "d": fragments are not permitted in the URL
        spec.conversion.webhookClientConfig.url: Invalid value: "c": query parameters are not permitted in the URL
        spec.conversion.conversionReviewVersions[1]: Invalid value: "v2": duplicate version
        spec.conversion.conversionReviewVersions: Invalid value: ["v2","v2"]: must include at least one of v1, v1beta1"#]],
    );
    with(
        hook(json!({"service": {"port": 70000, "path": "x//y"}}), json!(["v1"])),
        expect![[r#"
        spec.conversion.webhookClientConfig.service.name: Required value
        spec.conversion.webhookClientConfig.service.namespace: Required value
        spec.conversion.webhookClientConfig.service.port: Invalid value: 70000: port is not valid: must be between 1 and 65535, inclusive
        spec.conversion.webhookClientConfig.service.path: Invalid value: "x//y": must start with a '/'
        spec.conversion.webhookClientConfig.service.path: Invalid value: "x//y": segment[0] may not be empty
        spec.conversion.webhookClientConfig.service.path: Invalid value: "x//y": segment[1] may not be empty"#]],
    );
    with(
        hook(json!({"service": {"name": "n", "namespace": "n", "path": "ümlaut"}}), json!(["v1"])),
        expect![[r#"
        spec.conversion.webhookClientConfig.service.path: Invalid value: "ümlaut": must start with a '/'
        spec.conversion.webhookClientConfig.service.path: Invalid value: "ümlaut": segment[0]: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#]],
    );
}

#[test]
fn the_bundle_of_an_established_definition_is_read_before_versions_of_reviews() {
    let hook = |bundle: &str| json!({"strategy": "Webhook", "webhook": {"clientConfig": {"url": "https://a", "caBundle": bundle}, "conversionReviewVersions": ["v2"]}});
    let mut old = changed(&[("/spec/conversion", hook(""))]);
    let new = changed(&[("/spec/conversion", hook("YQ=="))]);
    let versions = r#"spec.conversion.conversionReviewVersions: Invalid value: ["v2"]: must include at least one of v1, v1beta1"#;
    assert_eq!(show(&validate_definition(&new, Some(&old))), versions);
    old["status"]["conditions"] = json!([{"type": "Established", "status": "True"}]);
    let bundle = r#"spec.conversion.webhookClientConfig.caBundle: Invalid value: "YQ==": unable to load root certificates: unable to parse bytes as PEM block"#;
    assert_eq!(show(&validate_definition(&new, Some(&old))), format!("{bundle}\n{versions}"));
}

#[test]
fn unknown_formats_are_warned_of_wherever_schemas_are() {
    let mut schema = json!({"type": "object", "format": "f0"});
    for (i, member) in ["allOf", "anyOf", "oneOf"].into_iter().enumerate() {
        schema[member] = json!([{"format": format!("f{}", i + 1)}]);
    }
    schema["not"] = json!({"type": "string", "format": "\0"});
    schema["additionalProperties"] = json!({"type": "string", "format": "u-u-i-d"});
    let crd = changed(&[("/spec/versions/0/schema/openAPIV3Schema", schema)]);
    let formats = ["f0", "f1", "f2", "f3", "\\x00"];
    assert_eq!(
        super::definition_warnings(&crd),
        formats.map(|format| format!("unrecognized format \"{format}\""))
    );
}

#[test]
fn updates_keep_what_is_fixed_and_bear_what_was_wrong() {
    let show = |old: &Value, new: &Value| show(&validate_definition(new, Some(old)));
    let broken = changed(&[("/spec/versions/0/schema/openAPIV3Schema/properties/x", json!({}))]);
    expect![""].assert_eq(&show(&broken, &broken));
    expect!["spec.validation.openAPIV3Schema.properties[x].type: Required value: must not be empty for specified object fields"].assert_eq(&show(&crd(), &broken));
    let other = changed(&[("/spec/scope", json!("Cluster"))]);
    expect![""].assert_eq(&show(&crd(), &other));
    let mut established = crd();
    established["status"]["conditions"] = json!([{"type": "Established", "status": "True"}]);
    expect![[r#"spec.scope: Invalid value: "Cluster": field is immutable"#]]
        .assert_eq(&show(&established, &other));
    let plural =
        changed(&[("/spec/names/plural", json!("bars")), ("/metadata/name", json!("bars.ex.io"))]);
    expect![[r#"spec.names.plural: Invalid value: "bars": field is immutable"#]]
        .assert_eq(&show(&crd(), &plural));
}

#[test]
fn an_update_reports_what_may_not_change_before_the_status() {
    let mut old = crd();
    old["status"]["conditions"] = json!([{"type": "Established", "status": "True"}]);
    let mut new = old.clone();
    new["spec"]["versions"][0]["name"] = "v2".into();
    new["spec"]["scope"] = "Cluster".into();
    new["spec"]["preserveUnknownFields"] = true.into();
    let errors = show(&validate_definition(&new, Some(&old)));
    let places: Vec<_> = errors.lines().map(|line| line.split(':').next().unwrap()).collect();
    assert_eq!(places, ["spec.scope", "status.storedVersions[0]", "spec.preserveUnknownFields"]);
}
