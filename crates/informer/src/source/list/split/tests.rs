use super::*;
use crate::source::ListPage;
use proptest::prelude::*;
use serde_json::{Value, json};

type Split = (Vec<Bytes>, ListEnd);

/// Feeds pieces of a text that end at `cuts`.
fn split(text: &[u8], mut cuts: Vec<usize>) -> Result<Split, SourceError> {
    cuts.sort_unstable();
    cuts.push(text.len());
    let (mut splitter, mut items, mut from) = (ListSplitter::default(), Vec::new(), 0);
    for to in cuts {
        splitter.feed(Bytes::copy_from_slice(&text[from..to]));
        from = to;
        while let Some((item, head)) = splitter.next_item()? {
            assert_eq!(Head::of(&item).unwrap(), head);
            items.push(item);
        }
    }
    Ok((items, splitter.finish()?))
}
fn is_protocol(result: Result<Split, SourceError>) -> bool {
    matches!(result, Err(SourceError::Protocol { .. }))
}

#[test]
fn a_list_is_the_same_wherever_its_chunks_end() {
    let text = br#" {"\u006bind":"PodList","extra":{"items":[{"kind":"no"}],"kind":3},"n":-1.5e3,"t":"x\\","items" : [ {"metadata":{"name":"a"}} ,
        {"metadata":{"name":"\"]}"},"x":[1, 2]} ] , "metadata":{"resourceVersion":"7","continue":"t","remainingItemCount":9} } "#;
    let whole = split(text, Vec::new()).unwrap();
    let items: Vec<&[u8]> = whole.0.iter().map(|item| &item[..]).collect();
    let second = &br#"{"metadata":{"name":"\"]}"},"x":[1, 2]}"#[..];
    assert_eq!(items, [&br#"{"metadata":{"name":"a"}}"#[..], second]);
    let end = ListEnd {
        kind: "PodList".to_owned(),
        resource_version: "7".to_owned(),
        continue_token: Some("t".to_owned()),
        remaining_item_count: Some(9),
        shard_selector: None,
    };
    assert_eq!(whole.1, end);
    for at in 0..text.len() {
        assert_eq!(split(text, vec![at]).unwrap(), whole, "cut at {at}");
        assert!(is_protocol(split(&text[..at], vec![])) || at + 1 == text.len(), "ends at {at}");
    }
    assert_eq!(split(text, (0..text.len()).collect()).unwrap(), whole);
}

#[test]
fn items_of_one_chunk_are_slices_of_it_and_only_the_one_between_is_copied() {
    let text = Bytes::from_static(br#"{"items":[{"a":1},{"b":2},{"c":3},{"d":4}]}"#);
    let cut = text.len() - 13;
    let (first, second) = (text.slice(..cut), text.slice(cut..));
    let (mut splitter, mut shared) = (ListSplitter::default(), Vec::new());
    for chunk in [first, second] {
        splitter.feed(chunk);
        while let Some((item, _)) = splitter.next_item().unwrap() {
            shared.push(text.as_ptr_range().contains(&item.as_ptr()));
        }
    }
    assert_eq!(shared, [true, true, false, true]);
}

#[test]
fn ref_7_a_table_is_refused_before_its_rows_have_come() {
    let mut splitter = ListSplitter::default();
    splitter.feed(Bytes::from_static(br#"{"kind":"Table","rows":["#));
    assert!(matches!(splitter.next_item(), Err(SourceError::Protocol { .. })));
    assert!(is_protocol(split(br#"{"items":[],"kind":"Status"}"#, vec![])));
}

#[test]
fn invariant_16_other_json_than_a_list_is_a_typed_error() {
    for text in [
        &b"[]"[..],
        b"null",
        b"",
        b"{",
        b"{} x",
        br#"{"items":{}}"#,
        br#"{"items":7}"#,
        br#"{"items":[7]}"#,
        br#"{"items":[{},]}"#,
        br#"{"items":[,{}]}"#,
        br#"{"items":[{} {}]}"#,
        br#"{"items":[{}],"items":[]}"#,
        br#"{"items":[{]}"#,
        br#"{"items" []}"#,
        br#"{"items":[],}"#,
        br#"{,"items":[]}"#,
        br#"{"kind":7}"#,
        br#"{"metadata":[7]}"#,
        b"{\"items\":[{\"a\":\"\xc3\"}]}",
    ] {
        assert!(is_protocol(split(text, vec![])), "{}", String::from_utf8_lossy(text));
        let each = (0..text.len()).collect();
        assert!(is_protocol(split(text, each)), "{}", String::from_utf8_lossy(text));
    }
}

#[test]
fn item_of_64_mib_is_rejected_at_the_size_limit() {
    let chunk = Bytes::from(vec![b'x'; 1 << 16]);
    let mut splitter = ListSplitter::default();
    splitter.feed(Bytes::from_static(br#"{"items":[{"a":""#));
    let mut n_fed = 0;
    let error = loop {
        match splitter.next_item() {
            Ok(None) => {}
            other => break other,
        }
        assert!(splitter.pending.len() <= ITEM_BYTES_MAX);
        n_fed += chunk.len();
        assert!(n_fed <= 64 << 20, "nothing stopped it");
        splitter.feed(chunk.clone());
    };
    assert!(matches!(error, Err(SourceError::TooLarge { .. })), "{error:?}");
    assert!(n_fed <= ITEM_BYTES_MAX + chunk.len());
    // And when it comes in one chunk.
    let body = [&br#"{"items":[{"a":""#[..], &vec![b'x'; ITEM_BYTES_MAX], br#""}]}"#].concat();
    assert!(matches!(ListPage::parse(&body.into()), Err(SourceError::TooLarge { .. })));
}

#[test]
fn unknown_member_of_any_size_is_not_buffered() {
    let mut splitter = ListSplitter::default();
    splitter.feed(Bytes::from_static(br#"{"more":[""#));
    for _ in 0..=ITEM_BYTES_MAX >> 20 {
        assert!(splitter.next_item().unwrap().is_none());
        splitter.feed(vec![b'x'; 1 << 20].into());
        assert!(splitter.pending.is_empty());
    }
    assert!(splitter.next_item().unwrap().is_none());
    splitter.feed(Bytes::from_static(br#""],"items":[{}]}"#));
    assert!(splitter.next_item().unwrap().is_some());
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<i32>().prop_map(Value::from),
        "[a-z\"\\\\{}\\[\\]é]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::hash_map("[a-z\"\\\\]{0,4}|items|kind", inner, 0..3)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn items_agree_with_serde_json(
        values in proptest::collection::vec(value(), 0..5),
        (extra, more) in (value(), value()),
        order in Just([0, 1, 2, 3, 4]).prop_shuffle(),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..6),
        pretty: bool,
    ) {
        let items: Vec<Value> = values.into_iter().map(|value| json!({"metadata": {"name": "x"}, "v": value})).collect();
        let encode = |value: &Value| match pretty {
            true => serde_json::to_string_pretty(value).unwrap(),
            false => value.to_string(),
        };
        let members = [
            ("items", encode(&json!(items))),
            ("kind", "\"XList\"".to_owned()),
            ("metadata", encode(&json!({"resourceVersion": "5", "items": more}))),
            ("other", encode(&extra)),
            ("Items", encode(&more)),
        ];
        let members: Vec<String> = order.iter().map(|idx| format!("\"{}\":{}", members[*idx].0, members[*idx].1)).collect();
        let text = format!("{{{}}}", members.join(","));
        let cuts = cuts.iter().map(|cut| cut.index(text.len())).collect();
        let (got, end) = split(text.as_bytes(), cuts).unwrap();
        let got: Vec<Value> = got.iter().map(|item| serde_json::from_slice(item).unwrap()).collect();
        prop_assert_eq!(got, items);
        prop_assert_eq!((end.kind.as_str(), end.resource_version.as_str()), ("XList", "5"));
    }

    #[test]
    fn no_bytes_make_it_panic_or_depend_on_the_chunks(
        bytes in proptest::collection::vec(prop_oneof![
            3 => proptest::sample::select(b"{}[]\",:\\ n".to_vec()), 1 => any::<u8>(),
        ], 0..40),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..6),
        prefix in proptest::sample::select(vec!["", "{\"items\":[", "{\"kind\":", "{\"metadata\":"]),
    ) {
        let text = [prefix.as_bytes(), &bytes].concat();
        let cuts = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
        prop_assert_eq!(split(&text, cuts).ok(), split(&text, vec![]).ok());
    }
}
