use super::*;
use serde_json::json;

#[test]
fn errors_read_as_the_api_words_them() {
    let spec = Path::new("spec");
    for (error, text, reason) in [
        (
            Error::required(spec.child("a"), "name or generateName is required"),
            "spec.a: Required value: name or generateName is required",
            "FieldValueRequired",
        ),
        (Error::required(spec.child("a"), ""), "spec.a: Required value", "FieldValueRequired"),
        (
            Error::invalid(spec.child("c").index(0).child("n"), &json!("b"), "must be Foo"),
            r#"spec.c[0].n: Invalid value: "b": must be Foo"#,
            "FieldValueInvalid",
        ),
        (
            Error::type_invalid(spec.clone(), &json!(3), "must be of type string"),
            "spec: Invalid value: 3: must be of type string",
            "FieldValueTypeInvalid",
        ),
        (
            Error::not_supported(spec.key("k"), &json!("x"), &["A", "B"]),
            r#"spec[k]: Unsupported value: "x": supported values: "A", "B""#,
            "FieldValueNotSupported",
        ),
        (
            Error::duplicate(Path::root(), &json!({"b": "<", "a": 1})),
            r#"<nil>: Duplicate value: {"a":1,"b":"\u003c"}"#,
            "FieldValueDuplicate",
        ),
        (
            Error::not_found(spec.clone(), &json!("x")),
            r#"spec: Not found: "x""#,
            "FieldValueNotFound",
        ),
        (Error::forbidden(spec.clone(), "no"), "spec: Forbidden: no", "FieldValueForbidden"),
        (
            Error::too_long(spec.clone(), 63),
            "spec: Too long: may not be more than 63 bytes",
            "FieldValueTooLong",
        ),
        (
            Error::too_many(spec.clone(), 3, 1),
            "spec: Too many: 3: must have at most 1 item",
            "FieldValueTooMany",
        ),
        (Error::internal(spec.clone(), "x"), "spec: Internal error: x", "InternalError"),
    ] {
        assert_eq!((error.to_string().as_str(), error.reason()), (text, reason));
    }
}

#[test]
fn values_print_as_go_prints_them() {
    for (value, text) in [
        (
            json!("a\"b\\\n\u{0}\u{7f}é\u{a0}e\u{301}"),
            "\"a\\\"b\\\\\\n\\x00\\x7fé\\u00a0e\u{301}\"",
        ),
        (json!(-1), "-1"),
        (json!(1.0), "1"),
        (json!(1.5), "1.5"),
        (json!(1e21), "1e+21"),
        (json!(1e20), "100000000000000000000"),
        (json!(0.00001), "1e-05"),
        (json!(true), "true"),
        (json!(null), "null"),
        (json!(["a", 1]), r#"["a",1]"#),
    ] {
        assert_eq!(show(&value), text);
    }
}

#[test]
fn an_aggregate_names_each_fault_once() {
    let a = Error::required(Path::new("a"), "");
    let b = Error::required(Path::new("b"), "");
    assert_eq!(aggregate(std::slice::from_ref(&a)), "a: Required value");
    assert_eq!(aggregate(&[a.clone(), b, a]), "[a: Required value, b: Required value]");
}
