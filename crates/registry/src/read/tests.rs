use crate::Verb;
use crate::testing::{Bench, config_map, options, take};
use serde_json::json;
use setpoint_store::{Op, Revision};
use std::task::Poll;

/// Five ConfigMaps at revisions 2 to 6; the odd ones have a label.
async fn bench() -> Bench {
    let bench = Bench::new().await;
    for (idx, name) in ["a", "b", "c", "d", "e"].into_iter().enumerate() {
        let labels = if idx % 2 == 0 { json!({"odd": "1"}) } else { json!({}) };
        bench.put(&format!("configmaps/default/{name}"), &config_map(name, labels, "1")).await;
    }
    bench
}
async fn error(bench: &Bench, text: &str) -> (u16, String) {
    let error = bench.list("v1/configmaps", options(text)).await.unwrap_err();
    (error.code(), error.to_string())
}

#[tokio::test(start_paused = true)]
async fn a_list_shows_the_newest_state_and_the_stores_revision() {
    let bench = bench().await;
    bench.put("secrets/default/s", &json!({"metadata": {"name": "s"}})).await;
    for (path, text, page) in [
        ("v1/configmaps", "", "a@2=1 b@3=1 c@4=1 d@5=1 e@6=1 · at 7"),
        ("v1/configmaps/default", "labels=odd", "a@2=1 c@4=1 e@6=1 · at 7"),
        ("v1/configmaps/default", "fields=metadata.name=b", "b@3=1 · at 7"),
        (
            "v1/configmaps",
            "fields=metadata.name!=b,metadata.namespace=default labels=!odd",
            "d@5=1 · at 7",
        ),
        ("v1/configmaps/other", "", " · at 7"),
        ("v1/configmaps", "rv=0 limit=2", "a@2=1 b@3=1 c@4=1 d@5=1 e@6=1 · at 7"),
        ("v1/configmaps", "rv=3 fresh limit=2", "a@2=1 b@3=1 · at 7 · 3 remain · more"),
        ("v1/configmaps", "rv=3", "a@2=1 b@3=1 c@4=1 d@5=1 e@6=1 · at 7"),
        ("v1/configmaps", "rv=3 exact", "a@2=1 b@3=1 · at 3"),
        ("v1/configmaps", "rv=4 limit=2", "a@2=1 b@3=1 · at 4 · 1 remain · more"),
        ("v1/configmaps", "limit=2 labels=odd", "a@2=1 c@4=1 · at 7 · more"),
        ("v1/configmaps", "limit=5", "a@2=1 b@3=1 c@4=1 d@5=1 e@6=1 · at 7"),
        ("v1/configmaps", "limit=-1", "a@2=1 b@3=1 c@4=1 d@5=1 e@6=1 · at 7"),
    ] {
        assert_eq!(bench.list(path, options(text)).await.unwrap(), page, "{path} {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn pages_show_one_revision() {
    let bench = bench().await;
    let request = bench.request(Verb::List, "v1/configmaps/default");
    let list = |options| {
        let (registry, request) = (&bench.registry, &request);
        async move { registry.list(request, &options).await }
    };
    let first = list(options("limit=2")).await.unwrap();
    bench.delete("configmaps/default/c").await;
    let token = first.continue_token.clone();
    let second = list(options(&format!("limit=2 continue={token}"))).await.unwrap();
    assert_eq!((second.revision, second.items.len(), second.remaining), (6, 2, Some(1)));
    let last = list(options(&format!("limit=2 continue={}", second.continue_token))).await.unwrap();
    assert_eq!((last.revision, last.items.len(), last.remaining), (6, 1, None));
    assert_eq!(last.continue_token, "");
    // Compacted: the answer has a token that continues with the newest state.
    bench.store.compact(Revision(7)).await.unwrap();
    let expired = list(options(&format!("limit=2 continue={token}"))).await.unwrap_err();
    assert_eq!(expired.code(), 410);
    assert!(expired.to_string().starts_with("The provided continue parameter is too old"));
    let fresh = expired.0.metadata.continue_token.clone();
    let rest = list(options(&format!("continue={fresh}"))).await.unwrap();
    assert_eq!((rest.revision, rest.items.len()), (7, 2));
}

#[tokio::test(start_paused = true)]
async fn invalid_options_are_refused() {
    let bench = bench().await;
    let invalid = |text: &str| format!(r#"ListOptions.meta.k8s.io "" is invalid: {text}"#);
    for (text, code, message) in [
        ("fresh", 422, invalid("resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided")),
        ("rv=0 exact", 422, invalid(r#"resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0""#)),
        ("exact continue=x", 422, invalid("[resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided, resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided]")),
        ("initial", 422, invalid("sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list")),
        ("match=Foo", 422, invalid(r#"[resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided, resourceVersionMatch: Unsupported value: "Foo": supported values: "Exact", "NotOlderThan", ""]"#)),
        ("rv=0 exact continue=x initial", 422, invalid(r#"[resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided, resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0", sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list]"#)),
        ("rv=foo", 400, r#"invalid resource version: resourceVersion: Invalid value: "foo": strconv.ParseUint: parsing "foo": invalid syntax"#.to_owned()),
        ("continue=? rv=3", 400, "invalid continue token: continue key is not valid: illegal base64 data at input byte 0".to_owned()),
        ("continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NCwic3RhcnQiOiJhIn0 rv=3", 400, "specifying resource version is not allowed when using continue".to_owned()),
    ] {
        assert_eq!(error(&bench, text).await, (code, message), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn compacted_revisions_are_gone_and_future_ones_are_waited_for() {
    let bench = bench().await;
    bench.store.compact(Revision(4)).await.unwrap();
    let gone = "The resourceVersion for the provided list is too old.".to_owned();
    assert_eq!(error(&bench, "rv=2 exact").await, (410, gone));
    let future = "Timeout: Too large resource version: 9, current: 6".to_owned();
    for text in ["rv=9", "rv=9 exact", "rv=9 limit=1"] {
        assert_eq!(error(&bench, text).await, (504, future.clone()));
        // As in Kubernetes, only a read that may be any newer one is to be tried again.
        let refused = bench.list("v1/configmaps", options(text)).await.unwrap_err();
        let seconds = refused.0.details.unwrap().retry_after_seconds;
        assert_eq!(seconds, u32::from(text == "rv=9"), "{text}");
    }
    let (page, _) =
        tokio::join!(bench.list("v1/configmaps", options("rv=7 exact limit=1")), async {
            tokio::task::yield_now().await;
            bench.delete("configmaps/default/a").await
        });
    assert_eq!(page.unwrap(), "b@3=1 · at 7 · 3 remain · more");
}

#[tokio::test(start_paused = true)]
async fn a_list_before_the_cache_is_filled_reads_the_store() {
    let bench = bench().await;
    let unfilled = Bench::idle(bench.store.clone());
    for text in ["limit=2", "rv=0 limit=2"] {
        let page = unfilled.list("v1/configmaps", options(text)).await.unwrap();
        assert_eq!(page, "a@2=1 b@3=1 · at 6 · 3 remain · more");
    }
}

fn secret(name: &str, text: &str) -> serde_json::Value {
    json!({"apiVersion": "v1", "data": {"a": text}, "kind": "Secret",
        "metadata": {"name": name, "namespace": "default"}, "type": "Opaque"})
}

/// How often a list lets others run.
async fn n_yields(bench: &Bench, path: &str, text: &str) -> usize {
    let mut list = Box::pin(bench.list(path, options(text)));
    let mut n_yields = 0;
    loop {
        match futures::poll!(list.as_mut()) {
            Poll::Ready(page) => {
                page.unwrap();
                return n_yields;
            }
            Poll::Pending => n_yields += 1,
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn looks_at_large_objects_take_their_time_of_a_slice() {
    let bench = Bench::new().await;
    for n in 0..40 {
        let name = format!("s{n:02}");
        let text = "x".repeat(200 << 10);
        bench.put(&format!("secrets/default/{name}"), &secret(&name, &text)).await;
    }
    bench.settle().await;
    // Each counts as 400 microseconds, and a slice is a millisecond. The first look at labels finds
    // them.
    for (text, expected) in
        [("fields=type=none", 10..=45), ("labels=a", 10..=45), ("labels=a", 0..=4), ("", 0..=4)]
    {
        let n_yields = n_yields(&bench, "v1/secrets", text).await;
        assert!(expected.contains(&n_yields), "{text}: {n_yields}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_field_is_read_once_for_all_its_terms() {
    let bench = Bench::new().await;
    let text = "x".repeat(200 << 10);
    bench.put("secrets/default/s", &secret("s", &text)).await;
    let terms: Vec<_> = (0..5000).map(|n| format!("type!=a{n}")).collect();
    let fields = format!("fields={}", terms.join(","));
    assert_eq!(bench.list("v1/secrets", options(&fields)).await.unwrap(), "s@2 · at 2");
    for (more, page) in [("type=Opaque", "s@2 · at 2"), ("type!=Opaque", " · at 2")] {
        let text = format!("{fields},{more}");
        assert_eq!(bench.list("v1/secrets", options(&text)).await.unwrap(), page, "{more}");
    }
    // Read term by term, these lists would take half a minute each.
    let two = "fields=type=Opaque,type=other";
    assert_eq!(bench.list("v1/secrets", options(two)).await.unwrap(), " · at 2");
}

#[tokio::test(start_paused = true)]
async fn get_reads_the_present_state() {
    let bench = bench().await;
    let get = async |name: &str, rv: &str| {
        let request = bench.request(Verb::Get, &format!("v1/configmaps/default/{name}"));
        let object = bench.registry.get(&request, rv).await;
        object.map(|o| setpoint_object::Skim::of(&o.bytes).unwrap().resource_version.into_owned())
    };
    assert_eq!(get("a", "").await.unwrap(), "2");
    assert_eq!(get("a", "0").await.unwrap(), "2");
    assert_eq!(get("a", "6").await.unwrap(), "2");
    for (name, rv, code, message) in [
        ("z", "", 404, r#"configmaps "z" not found"#),
        ("a", "9", 504, "Timeout: Too large resource version: 9, current: 6"),
        (
            "a",
            "x",
            500,
            r#"resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax"#,
        ),
        ("a%b", "", 400, r#"Name parameter invalid: "a%b": may not contain '%'"#),
    ] {
        let error = get(name, rv).await.unwrap_err();
        assert_eq!((error.code(), error.to_string().as_str()), (code, message));
    }
}

/// A value that no key of the encryption configuration decrypts: reads that would return it fail,
/// all others work.
#[tokio::test(start_paused = true)]
async fn a_sealed_value_fails_only_reads_that_would_return_it() {
    let bench = bench().await;
    let mut live = bench.watch("v1/configmaps/default", options("rv=6")).await.unwrap();
    let sealed = || "k8s:enc:aesgcm:v1:k:xyz".into();
    bench.commit(vec![Op::Put("/registry/configmaps/other/s".into(), sealed())]).await;
    bench.settle().await;
    let text = "Internal error occurred: unable to transform key \"/registry/configmaps/other/s\": identity transformer tried to read encrypted data";
    assert_eq!(error(&bench, "").await, (500, text.to_owned()));
    assert_eq!(error(&bench, "rv=7 exact").await, (500, text.to_owned()));
    assert_eq!(error(&bench, "limit=50 fields=metadata.name=s").await, (500, text.to_owned()));
    assert_eq!(error(&bench, "rv=0").await.0, 500);
    let mut all = bench.watch("v1/configmaps", options("initial bookmarks fresh")).await.unwrap();
    let items = take(&mut all).await;
    assert!(items.contains("/other/s\": the value cannot be decrypted"), "{items}");
    let request = bench.request(Verb::Get, "v1/configmaps/other/s");
    let error = bench.registry.get(&request, "").await.unwrap_err();
    let alone =
        "Internal error occurred: identity transformer tried to read encrypted data".to_owned();
    assert_eq!(error.to_string(), alone, "who asks for it knows its key");
    // Lists and watches of another namespace and another resource work, but watches restart.
    let page = "a@2=1 b@3=1 c@4=1 d@5=1 e@6=1 · at 7";
    assert_eq!(bench.list("v1/configmaps/default", options("")).await.unwrap(), page);
    assert_eq!(bench.list("v1/secrets", options("")).await.unwrap(), " · at 7");
    assert_eq!(take(&mut live).await, "end");
    let mut old = bench.watch("v1/configmaps/default", options("rv=6")).await.unwrap();
    assert_eq!(take(&mut old).await, "error: too old resource version: 6 (7) end");
    let mut live = bench.watch("v1/configmaps/default", options("rv=7")).await.unwrap();
    bench.put("configmaps/default/f", &config_map("f", json!({}), "1")).await;
    bench.settle().await;
    assert_eq!(take(&mut live).await, "+f@8=1");
    // After it is written again, it is an object like the others.
    bench.put("configmaps/other/s", &config_map("s", json!({}), "2")).await;
    bench.settle().await;
    assert_eq!(take(&mut live).await, "end");
    assert_eq!(bench.list("v1/configmaps/other", options("")).await.unwrap(), "s@9=2 · at 9");
}
