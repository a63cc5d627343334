use super::*;

const V3: Form = Form::V3(Encoding::Json);

fn headers(pairs: &[(header::HeaderName, &str)]) -> HeaderMap {
    pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
}
async fn get(
    documents: &Documents,
    path: &str,
    query: &str,
    headers: &HeaderMap,
) -> Response<Body> {
    let (served, query) = (Served::default(), Query::parse(query));
    let style = Style { pretty: false, gzip: false };
    let now = Timestamp::from_secs(1_763_629_200);
    documents.respond(&served, path, &query, headers, style, now).await
}
fn text(response: &Response<Body>, name: header::HeaderName) -> &str {
    response.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

#[test]
fn the_least_recently_used_document_is_dropped_first() {
    let mut cache = DocumentCache::default();
    let third = Bytes::from(vec![b' '; CACHE_BYTES_MAX / 3]);
    for key in ["a", "b", "c"] {
        cache.put(V3, key, "1", Content::Document(third.clone()));
    }
    assert!(cache.get(V3, "a", "1").is_some());
    assert!(cache.get(V3, "b", "2").is_none(), "another document");
    cache.put(V3, "d", "1", Content::Document(third.clone()));
    let has = |cache: &mut DocumentCache, key| cache.get(V3, key, "1").is_some();
    assert_eq!(["a", "b", "c", "d"].map(|key| has(&mut cache, key)), [true, false, true, true]);
    let whole = Bytes::from(vec![b' '; CACHE_BYTES_MAX + 1]);
    cache.put(V3, "e", "1", Content::Document(whole));
    // It would displace everything else, and then be dropped itself.
    assert!(!has(&mut cache, "e") && has(&mut cache, "d"));
    assert_eq!(
        cache.bytes,
        cache.contents.iter().map(|(_, (_, content))| content.len()).sum::<usize>()
    );
}

#[test]
fn http_dates() {
    assert_eq!(http_date(Timestamp::from_secs(0)), "Thu, 01 Jan 1970 00:00:00 GMT");
    assert_eq!(http_date(Timestamp::from_secs(1_763_629_200)), "Thu, 20 Nov 2025 09:00:00 GMT");
}

#[tokio::test]
async fn v2_is_json_or_protobuf_by_accept_and_has_an_etag() {
    let documents = Documents::new(FeatureGates::default(), None);
    let plain = get(&documents, "v2", "", &HeaderMap::new()).await;
    assert_eq!((plain.status(), text(&plain, header::CONTENT_TYPE)), (StatusCode::OK, JSON));
    for accept in [V2_PROTOBUF_TYPE, V2_PROTOBUF_OLD_TYPE] {
        let answer = get(&documents, "v2", "", &headers(&[(header::ACCEPT, accept)])).await;
        assert_eq!(text(&answer, header::CONTENT_TYPE), V2_PROTOBUF_TYPE);
        assert_eq!(text(&answer, header::ETAG), text(&plain, header::ETAG));
    }
    let known = headers(&[(header::IF_NONE_MATCH, text(&plain, header::ETAG))]);
    assert_eq!(get(&documents, "v2", "", &known).await.status(), StatusCode::NOT_MODIFIED);
    let weak = format!("W/{}", text(&plain, header::ETAG));
    let weak = headers(&[(header::IF_NONE_MATCH, weak.as_str())]);
    assert_eq!(get(&documents, "v2", "", &weak).await.status(), StatusCode::NOT_MODIFIED);
    let yaml = headers(&[(header::ACCEPT, "application/yaml")]);
    let refused = get(&documents, "v2", "", &yaml).await;
    assert_eq!(refused.status(), StatusCode::NOT_ACCEPTABLE);
    assert_eq!(refused.body().as_bytes(), Some(&b""[..]));
}

#[tokio::test]
async fn v3_documents_are_cached_by_hash_and_old_hashes_are_redirected() {
    let documents = Documents::new(FeatureGates::default(), None);
    let index = get(&documents, "v3", "", &HeaderMap::new()).await;
    assert_eq!(text(&index, header::CONTENT_TYPE), "text/plain; charset=utf-8");
    assert_eq!(text(&index, header::ETAG), "");
    let index: serde_json::Value =
        serde_json::from_slice(index.body().as_bytes().unwrap()).unwrap();
    let url = index["paths"]["apis"]["serverRelativeURL"].as_str().unwrap();
    let (path, query) = url.strip_prefix("/openapi/").unwrap().split_once('?').unwrap();
    let response = get(&documents, path, query, &HeaderMap::new()).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(text(&response, header::CACHE_CONTROL), "public, immutable");
    assert_eq!(text(&response, header::EXPIRES), "Fri, 20 Nov 2026 09:00:00 GMT");
    let moved = get(&documents, path, "hash=OLD", &HeaderMap::new()).await;
    assert_eq!(moved.status(), StatusCode::MOVED_PERMANENTLY);
    assert_eq!(text(&moved, header::LOCATION), url);
    let plain = get(&documents, path, "", &HeaderMap::new()).await;
    assert_eq!(text(&plain, header::CACHE_CONTROL), "");
    assert_eq!(format!("hash={}", text(&plain, header::ETAG).trim_matches('"')), query);
    for accept in [V3_PROTOBUF_TYPE, V3_PROTOBUF_OLD_TYPE] {
        let accept = headers(&[(header::ACCEPT, accept)]);
        let binary = get(&documents, path, "", &accept).await;
        assert_eq!(binary.status(), StatusCode::OK);
        assert_eq!(text(&binary, header::CONTENT_TYPE), V3_PROTOBUF_TYPE);
        assert_eq!(text(&binary, header::ETAG), text(&plain, header::ETAG));
        assert!(binary.body().as_bytes().unwrap().starts_with(b"\x0a\x053.0.0"));
    }
    let absent = get(&documents, "v3/apis/nope/v1", "", &HeaderMap::new()).await;
    assert_eq!(absent.status(), StatusCode::NOT_FOUND);
    assert_eq!(absent.body().as_bytes(), Some(&b""[..]));
}
