use super::check;
use crate::decode::*;
use expect_test::expect;
use serde_json::json;

#[test]
fn yaml_is_json_with_other_punctuation() {
    check(
        Format::Yaml,
        "a: 1\nb: [true, ~, 'x', \"y\", 1.5, 0x10, 0o17]\nc:\n- d: |\n    text\n- 2020-01-01\n1: yes\n---\nsecond: 1\n",
        expect![[
            r#"{"1":true,"a":1,"b":[true,null,"x","y",1.5,16,15],"c":[{"d":"text\n"},"2020-01-01"]}"#
        ]],
    );
    check(Format::Yaml, r#"{"a": {"b": [1, "2"]}}"#, expect![[r#"{"a":{"b":[1,"2"]}}"#]]);
    check(Format::Yaml, "", expect!["null"]);
    check(
        Format::Yaml,
        "a: 1.2.3\nb: 1e3\nc: 12e\nd: 0.0.0.0\ne: -x\n",
        expect![[r#"{"a":"1.2.3","b":1000,"c":"12e","d":"0.0.0.0","e":"-x"}"#]],
    );
}

#[test]
fn yaml_plain_scalars_have_the_types_of_kubernetes() {
    for (text, value) in [
        ("y", json!(true)),
        ("Yes", json!(true)),
        ("on", json!(true)),
        ("n", json!(false)),
        ("OFF", json!(false)),
        ("yEs", json!("yEs")),
        ("\"on\"", json!("on")),
        ("017", json!(15)),
        ("08", json!(8)),
        ("-0x1f", json!(-31)),
        ("0o17", json!(15)),
        ("0b11", json!(3)),
        ("0b12", json!("0b12")),
        ("1_000", json!(1000)),
        ("1_000.5", json!(1000.5)),
        (".5", json!(0.5)),
        (".5_0", json!(".5_0")),
        ("1e3", json!(1000)),
        ("1e", json!("1e")),
        ("+", json!("+")),
        (".", json!(".")),
        ("--1", json!("--1")),
        ("1e400", json!("1e400")),
        ("9223372036854775807", json!(i64::MAX)),
        ("-9223372036854775808", json!(i64::MIN)),
        ("1:30", json!("1:30")),
        ("2001-01-01", json!("2001-01-01")),
        ("!!binary aGk=", json!("hi")),
        ("!!str 017", json!("017")),
        ("!!int \"3\"", json!(3)),
        ("!other 3", json!("3")),
    ] {
        let parsed = parse(format!("a: {text}\n").as_bytes(), Format::Yaml).unwrap();
        assert_eq!(parsed.value, json!({"a": value}), "{text}");
    }
    let keys = parse(b"{on: a, 017: b, \"on\": c, 1.50: d}", Format::Yaml).unwrap();
    assert_eq!(keys.value, json!({"true": "a", "15": "b", "on": "c", "1.5": "d"}));
    for refused in ["a: !!int x", "a: !!bool 1", "a: !!binary '*'", "~: a", "a: .inf"] {
        parse(refused.as_bytes(), Format::Yaml).unwrap_err();
    }
}

#[test]
fn yaml_scalars_are_those_of_go() {
    for (text, expected) in [
        ("yes", "true"),
        ("Off", "false"),
        ("n", "false"),
        ("tRue", "\"tRue\""),
        ("\"yes\"", "\"yes\""),
        ("0644", "420"),
        ("0o644", "420"),
        ("-0x1F", "-31"),
        ("0b11", "3"),
        ("08", "8"),
        ("1_000", "1000"),
        ("0_7", "7"),
        ("._5", "\"._5\""),
        ("5.", "5"),
        ("+.5", "0.5"),
        ("0x", "\"0x\""),
        ("-_", "\"-_\""),
        ("1:30", "\"1:30\""),
        ("1e400", "\"1e400\""),
        ("2020-01-01", "\"2020-01-01\""),
        ("-9223372036854775808", "-9223372036854775808"),
        ("18446744073709551615", "1.8446744073709552e+19"),
        ("!!str 5", "\"5\""),
        ("!!int \"5\"", "5"),
        ("!!bool yes", "true"),
        ("!!binary aGk=", "\"hi\""),
        ("!foo 5", "\"5\""),
    ] {
        let decoded = parse(format!("[{text}]").as_bytes(), Format::Yaml).unwrap();
        assert_eq!(decoded.value.to_string(), format!("[{expected}]"), "{text}");
    }
    let error = parse(b"[!!null x]", Format::Yaml).unwrap_err();
    assert_eq!(error.0, "yaml: line 1: cannot decode !!str `x` as a !!null");
    check(
        Format::Yaml,
        "yes: 1\n0x1F: 2\n\"no\": 3\n010: 4\n",
        expect![[r#"{"31":2,"8":4,"no":3,"true":1}"#]],
    );
}

#[test]
fn yaml_that_is_no_text_is_refused_in_the_words_of_go() {
    for (text, why) in [
        (&b"a: \xff"[..], "invalid leading UTF-8 octet"),
        (b"{\"a\":\"\x80\"}", "invalid leading UTF-8 octet"),
        (b"a: \xe2\x28\xa1", "invalid trailing UTF-8 octet"),
        (b"a: \xe2\x82", "incomplete UTF-8 octet sequence"),
        (b"a: \xc0\x80", "invalid length of a UTF-8 sequence"),
        (b"a: \xed\xa0\x80", "invalid Unicode character"),
        (b"a: \xf5\x80\x80\x80", "invalid Unicode character"),
        (b"a: \0", "control characters are not allowed"),
        (b"a: \x7f", "control characters are not allowed"),
    ] {
        let error = parse(text, Format::Yaml).unwrap_err();
        assert_eq!(error.0, format!("yaml: {why}"), "{text:?}");
    }
    for text in [r#"{"a":"\ud800"}"#, r#"{"a":"\udc00x"}"#] {
        assert!(parse(text.as_bytes(), Format::Yaml).is_err(), "{text}");
    }
    check(Format::Yaml, r#"{"a":"\ud83d\ude00 ä"}"#, expect![[r#"{"a":"😀 ä"}"#]]);
}

#[test]
fn yaml_duplicate_key_is_named_with_its_line() {
    check(
        Format::Yaml,
        "data:\n  x: 1\n  z: 2\n  x: 3\n",
        expect![[r#"{"data":{"x":3,"z":2}} line 4: key "x" already set in map"#]],
    );
}

#[test]
fn yaml_aliases_and_merge_keys_expand_within_limits() {
    check(
        Format::Yaml,
        "base: &b {x: 1, z: 2}\nuse:\n  <<: *b\n  z: 3\nlist: [*b]\n",
        expect![[r#"{"base":{"x":1,"z":2},"list":[{"x":1,"z":2}],"use":{"x":1,"z":3}}"#]],
    );
    let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned();
    for i in 1..20 {
        let aliases = vec![format!("*a{}", i - 1); 9].join(",");
        bomb.push_str(&format!("a{i}: &a{i} [{aliases}]\n"));
    }
    check(Format::Yaml, &bomb, expect!["yaml: line 4: document contains excessive aliasing"]);
}

#[test]
fn yaml_faults_name_the_line() {
    let error = parse("[".repeat(1000).as_bytes(), Format::Yaml).unwrap_err();
    assert!(error.0.starts_with("yaml: "), "{error}");
}

#[test]
fn yaml_faults_have_the_words_of_go() {
    for (text, why) in [
        ("a: b: c", "mapping values are not allowed in this context"),
        ("a: 1\nb: c: d", "line 2: mapping values are not allowed in this context"),
        ("{", "line 1: did not find expected node content"),
        ("a: 1\nb: [\n", "line 2: did not find expected node content"),
        ("[1,", "line 1: did not find expected node content"),
        ("key: [1, 2", "line 1: did not find expected ',' or ']'"),
        ("a: [\n1,\n2\n", "line 3: did not find expected ',' or ']'"),
        ("{a: b\n", "line 1: did not find expected ',' or '}'"),
        ("a: }", "did not find expected node content"),
        ("a: 1\nb: }", "line 1: did not find expected node content"),
        ("{\"a\": b,,}", "did not find expected node content"),
        ("a: [1}", "did not find expected ',' or ']'"),
        ("a: {b]", "did not find expected ',' or '}'"),
        ("a: \"b", "found unexpected end of stream"),
        ("a: 1\n\"b", "line 2: found unexpected end of stream"),
        ("a: *x", "unknown anchor 'x' referenced"),
        ("b: ä\na: [*foo-b]", "unknown anchor 'foo-b' referenced"),
        ("a: 1\nb: @", "line 2: found character that cannot start any token"),
        ("a:\n\tb: c", "line 2: found character that cannot start any token"),
        ("metadata: {name: a}\n  x: y", "line 1: did not find expected key"),
        ("metadata:\n  name: a\n name: b", "line 2: did not find expected key"),
        ("- a\nb: c", "line 1: did not find expected '-' indicator"),
        ("a: 1\nb\nc: d", "line 3: could not find expected ':'"),
        ("a: \"\\q\"", "found unknown escape character"),
        ("a: \"\\uZZZZ\"", "did not find expected hexdecimal number"),
        ("a: \"b\" c", "did not find expected key"),
        ("a: - b", "block sequence entries are not allowed in this context"),
    ] {
        let error = parse(text.as_bytes(), Format::Yaml).unwrap_err();
        assert_eq!(error.0, format!("yaml: {why}"), "{text:?}");
    }
}

#[test]
fn yaml_aliases_of_long_text_are_bounded() {
    let text = "x".repeat(1 << 20);
    let aliases = "- *a\n".repeat(1_000);
    check(
        Format::Yaml,
        &format!("- &a {text}\n{aliases}"),
        expect!["yaml: line 8: document contains excessive aliasing"],
    );
    // As keys, inside an anchored list, and merged.
    let keys: String = (0..100).map(|i| format!("k{i}: {{? *a : 1}}\n")).collect();
    check(
        Format::Yaml,
        &format!("first: &a {text}\n{keys}"),
        expect!["yaml: line 8: document contains excessive aliasing"],
    );
    check(
        Format::Yaml,
        &format!("a: &a [{text}]\nb: &b [*a, *a]\nc: &c [*b, *b]\n"),
        expect!["yaml: line 3: document contains excessive aliasing"],
    );
    let merges: String = (0..100).map(|i| format!("k{i}: {{<<: *a}}\n")).collect();
    check(
        Format::Yaml,
        &format!("first: &a {{x: {text}}}\n{merges}"),
        expect!["yaml: line 6: document contains excessive aliasing"],
    );
    assert!(parse(b"a: &a text\nb: *a\n*a : 1\n", Format::Yaml).is_ok());
}

/// Go makes JSON of a document once it has read all of it.
#[test]
fn what_json_cannot_say_is_found_at_the_end() {
    for (text, why) in [
        ("a: -.INF", "json: unsupported value: -Inf"),
        ("a: [1, .nan]", "json: unsupported value: NaN"),
        ("{~: 1}", "unsupported map key of type: %!s(<nil>), key: <nil>, value: 1"),
        (
            "a: .inf\n~: {b: [x, ~]}",
            "unsupported map key of type: %!s(<nil>), key: <nil>, value: map[interface \
             {}]interface {}{\"b\":[]interface {}{\"x\", interface {}(nil)}}",
        ),
        ("{null: null}", "unsupported map key of type: %!s(<nil>), key: <nil>, value: <nil>"),
        ("a: .inf\nb: {", "yaml: line 2: did not find expected node content"),
    ] {
        let error = parse(text.as_bytes(), Format::Yaml).unwrap_err();
        assert_eq!(error.0, why, "{text}");
    }
    check(
        Format::Yaml,
        "{.inf: 1, +.Inf: 2, .NaN: 3}",
        expect![[r#"{".inf":2,".nan":3} line 1: key ".inf" already set in map"#]],
    );
}

#[test]
fn faults_around_quotes_and_brackets_have_the_words_of_go() {
    for (text, why) in [
        ("a: b\nc: \"d\n", "line 3: found unexpected end of stream"),
        ("a: \"b\n c\nd", "line 3: found unexpected end of stream"),
        (r#"{"a":"b,"c":"d"}"#, "did not find expected ',' or '}'"),
        ("a:\n- [\"b\"c]", "line 1: did not find expected ',' or ']'"),
        ("a: b\n}", "line 1: did not find expected key"),
        ("}", "did not find expected node content"),
        (r#"{"a":{"b":"#, "line 1: did not find expected node content"),
        (r#"a: "\ud800""#, "found invalid Unicode character escape code"),
        ("\t{\"a\":1}", "found character that cannot start any token"),
        (" \n\ta: 1", "line 2: found character that cannot start any token"),
    ] {
        let error = parse(text.as_bytes(), Format::Yaml).unwrap_err();
        assert_eq!(error.0, format!("yaml: {why}"), "{text}");
    }
    // A bracket after the document is not looked at.
    check(Format::Yaml, "{\"a\":1}}", expect![[r#"{"a":1}"#]]);
    check(Format::Yaml, "{\n\t\"a\":\t1\n}", expect![[r#"{"a":1}"#]]);
}
