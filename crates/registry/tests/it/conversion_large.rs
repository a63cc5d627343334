//! Converted objects that take more than their limit.
use crate::conversion::{V1, V2, list, next, serving_with, store, watch, watching_from};
use futures::StreamExt as _;
use serde_json::json;
use setpoint_registry::{ListOptions, WatchStream};

#[tokio::test(start_paused = true)]
async fn a_view_over_its_size_limit_ends_with_an_error_for_its_readers() {
    let (server, state) = serving_with(|builder| builder.view_bytes_max(2000)).await;
    let everywhere = "/apis/ex.io/v2/foos";
    let all = ListOptions::default();
    let three = (0..3).map(|n| (format!("a{n}"), n));
    store(&server, three).await;
    let (found, revision) = list(&server, everywhere, &all).await.unwrap();
    assert_eq!(found, "a0=0 a1=1 a2=2");
    let mut stream = watch(&server, everywhere, &watching_from(revision)).await;
    let mut stored = watch(&server, "/apis/ex.io/v1/foos", &watching_from(revision)).await;
    // Changes of existing objects take no more memory than before.
    for n in 0..40 {
        store(&server, [("a1".to_owned(), 10 + n)].into_iter()).await;
        assert_eq!(next(&mut stream).await, format!("~a1={}", 10 + n));
        next_stored(&mut stored).await;
    }
    store(&server, (0..20).map(|n| (format!("b{n:02}"), n))).await;
    let refusal =
        "503 the objects of ex.io/v2, Kind=Foo take more than 2000 bytes when they are converted";
    assert_eq!(next(&mut stream).await, refusal);
    assert_eq!(next(&mut stream).await, "end");
    next_stored(&mut stored).await;
    assert_eq!(list(&server, everywhere, &all).await.unwrap_err(), refusal);
    assert_eq!(list(&server, everywhere, &all).await.unwrap_err(), refusal);
    // A get, or a page of one namespace, converts on its own.
    assert_eq!(server.get(&format!("{V2}/b07")).await.unwrap()["spec"], json!({"length": 7}));
    let page = ListOptions { limit: 2, ..ListOptions::default() };
    assert_eq!(list(&server, V2, &page).await.unwrap().0, "a0=0 a1=49");
    // Once it is small enough, a new view starts.
    for n in 0..20 {
        server.delete(&format!("{V1}/b{n:02}")).await.unwrap();
    }
    assert_eq!(list(&server, everywhere, &all).await.unwrap().0, "a0=0 a1=49 a2=2");
    drop(state);
    server.stop().await;
}
async fn next_stored(stream: &mut WatchStream) {
    assert!(stream.next().await.is_some_and(|event| event.is_ok()), "v1 is not concerned");
}

#[tokio::test(start_paused = true)]
async fn a_list_of_a_namespace_or_a_page_has_the_same_limit() {
    let (server, state) = serving_with(|builder| builder.view_bytes_max(2000)).await;
    store(&server, (0..20).map(|n| (format!("a{n:02}"), n))).await;
    let page = |limit| ListOptions { limit, ..ListOptions::default() };
    let refusal = "503 the objects of ex.io/v2, Kind=Foo in this list take more than 2000 bytes when they are converted: list them with a limit";
    assert_eq!(list(&server, V2, &page(0)).await.unwrap_err(), refusal);
    assert_eq!(list(&server, V2, &page(15)).await.unwrap_err(), refusal);
    // What is refused holds nothing, and pages reach everything.
    for _ in 0..10 {
        list(&server, V2, &page(4)).await.unwrap();
    }
    let (first, _) = list(&server, V2, &page(3)).await.unwrap();
    assert_eq!(first, "a00=0 a01=1 a02=2");
    // An exact revision is read from the store: the same limit.
    let revision = server.revision().await.to_string();
    let exactly = |limit| ListOptions {
        resource_version: revision.clone(),
        resource_version_match: Some(setpoint_registry::request::VersionMatch::Exact),
        ..page(limit)
    };
    assert_eq!(list(&server, V2, &exactly(0)).await.unwrap_err(), refusal);
    assert_eq!(list(&server, V2, &exactly(2)).await.unwrap().0, "a00=0 a01=1");
    drop(state);
    server.stop().await;
}
