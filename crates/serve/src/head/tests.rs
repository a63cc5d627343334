use super::*;

/// What becomes of a head: the first words of its refusal, or what follows it.
fn outcome(head: &str) -> String {
    let head = head.replace('\n', "\r\n") + "\r\n";
    assert_eq!(end(head.as_bytes(), 0), Some(head.len()), "{head:?}");
    match check(head.as_bytes()) {
        Err(refusal) => format!("{refusal:?}"),
        Ok(Checked { framing, rewritten: None, .. }) => format!("{framing:?}"),
        Ok(Checked { rewritten: Some(new), .. }) => String::from_utf8(new).unwrap(),
    }
}

#[track_caller]
fn check_all(cases: &[(&str, &str)]) {
    for (head, expected) in cases {
        assert_eq!(outcome(head), *expected, "{head}");
    }
}

#[test]
fn host_is_required_once_and_has_bytes_of_hosts() {
    check_all(&[
        ("GET / HTTP/1.1\n", "MissingHost"),
        ("GET http://a/ HTTP/1.1\n", "MissingHost"),
        ("GET / HTTP/1.0\n", "Length(0)"),
        ("CONNECT a:1 HTTP/1.1\n", "Opaque"),
        ("GET / HTTP/1.1\nHost:\n", "Length(0)"),
        ("GET / HTTP/1.1\nhOST: [::1]:80\n", "Length(0)"),
        ("GET / HTTP/1.1\nHost: a\nhost: a\n", "BadRequest"),
        ("GET / HTTP/1.1\nHost: a b\n", "MalformedHost"),
        ("GET / HTTP/1.1\nHost: a/b\n", "MalformedHost"),
        ("GET / HTTP/1.1\nHost: a@b\n", "MalformedHost"),
        ("GET / HTTP/1.1\nHost: é\n", "MalformedHost"),
    ]);
}

#[test]
fn request_line_is_a_method_a_target_and_a_version() {
    check_all(&[
        ("GET /\nHost: a\n", "BadRequest"),
        ("GET  / HTTP/1.1\nHost: a\n", "BadRequest"),
        ("G(T / HTTP/1.1\nHost: a\n", "BadRequest"),
        ("get / HTTP/1.1\nHost: a\n", "Length(0)"),
        ("GET / HTTP/1.1 \nHost: a\n", "BadRequest"),
        ("GET / http/1.1\nHost: a\n", "BadRequest"),
        ("GET / HTTP/2.0\nHost: a\n", "Version"),
        ("GET / HTTP/11\nHost: a\n", "BadRequest"),
    ]);
}

#[test]
fn targets_are_read_as_by_net_url() {
    let target = |target: &str| outcome(&format!("GET {target} HTTP/1.1\nHost: a\n"));
    for valid in [
        "*",
        "/",
        "//",
        "//a:b/",
        "/%ff?%zz",
        "/a%2fb",
        "http://a",
        "http://a/b?c",
        "HTTPS://u:p@a:1/",
        "http://[::1]:80/",
        "http://[fe80::1%25eth0]/",
        "x:y",
        "http:/a",
    ] {
        assert_eq!(target(valid), "Length(0)", "{valid}");
    }
    for invalid in [
        "%2f",
        "a",
        ":a",
        "/%",
        "/%z",
        "/%zz",
        "/%a",
        "/\u{7f}",
        "/\u{1}",
        "http://a:b/",
        "http://a:1:2/",
        "http://a b/",
        "http://[::1/",
        "http://[1.2.3.4]/",
        "http://a%20b/",
        "http://a/%zz",
        "?a",
    ] {
        assert_eq!(target(invalid), "BadRequest", "{invalid}");
    }
}

#[test]
fn body_has_one_length_or_is_chunked() {
    let with = |headers: &str| outcome(&format!("PUT / HTTP/1.1\nHost: a\n{headers}"));
    for (headers, expected) in [
        ("Content-Length: 7\n", "Length(7)"),
        ("Content-Length: 7\nContent-Length: 7\n", "Length(7)"),
        ("Content-Length: 7\nContent-Length: 8\n", "BadRequest"),
        ("Content-Length: 7, 7\n", "BadRequest"),
        ("Content-Length: +7\n", "BadRequest"),
        ("Content-Length:\n", "BadRequest"),
        ("Content-Length: 9223372036854775808\n", "BadRequest"),
        ("Transfer-Encoding: Chunked\n", "Chunked"),
        ("Transfer-Encoding: chunked\nContent-Length: 7\n", "Chunked"),
        ("Transfer-Encoding: chunked\nContent-Length: x\n", "BadRequest"),
        ("Transfer-Encoding: gzip\n", "TransferEncoding"),
        ("Transfer-Encoding: gzip, chunked\n", "TransferEncoding"),
        ("Transfer-Encoding: chunked\nTransfer-Encoding: chunked\n", "TransferEncoding"),
        ("Transfer-Encoding: identity\n", "TransferEncoding"),
        ("Transfer-Encoding:\n", "TransferEncoding"),
        ("Transfer-Encoding: chunked\nTrailer: A, content-length\n", "BadRequest"),
        ("Trailer: content-length\n", "Length(0)"),
        ("Connection: upgrade\nUpgrade: websocket\n", "Opaque"),
    ] {
        assert_eq!(with(headers), expected, "{headers}");
    }
}

#[test]
fn other_headers_are_checked() {
    check_all(&[
        ("GET / HTTP/1.1\n Host: a\n", "BadRequest"),
        ("GET / HTTP/1.1\nHost a\n", "BadRequest"),
        ("GET / HTTP/1.1\nHost: a\n: b\n", "BadRequest"),
        ("GET / HTTP/1.1\nHost: a\nA(: b\n", "BadRequest"),
        ("GET / HTTP/1.1\nHost: a\nA: \u{1}\n", "BadRequest"),
        ("GET / HTTP/1.1\nHost: a\nA: \u{7f}\n", "BadRequest"),
        ("GET / HTTP/1.1\nHost: a\nA: é\n", "Length(0)"),
        ("GET / HTTP/1.1\nHost: a\nA : b\n", "HeaderName"),
        // Not a `Host`.
        ("GET / HTTP/1.1\nHost : a\n", "MissingHost"),
        ("GET / HTTP/1.1\nHost: a\nExpect: 100-Continue\n", "Length(0)"),
        ("GET / HTTP/1.1\nHost: a\nExpect: 200-ok\n", "Expectation"),
        ("GET / HTTP/1.1\nHost: a\nExpect:\n", "Length(0)"),
    ]);
}

#[test]
fn heads_that_only_go_reads_are_rewritten() {
    check_all(&[
        (
            "GET /a<b>?c=\"#é HTTP/1.1\nHost: a\n",
            "GET /a%3Cb%3E?c=%22%23%C3%A9 HTTP/1.1\r\nHost: a\r\n\r\n",
        ),
        (
            "GET / HTTP/1.1\nHost: a\nA: b \n  c\n\td\nE: f\n",
            "GET / HTTP/1.1\r\nHost: a\r\nA: b c d\r\nE: f\r\n\r\n",
        ),
        ("GET / HTTP/1.2\nHost: a\n", "GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
        (
            "PUT / HTTP/1.0\nTransfer-Encoding: x\n y\nContent-Length: 1\n",
            "PUT / HTTP/1.0\r\nContent-Length: 1\r\n\r\n",
        ),
    ]);
}

#[test]
fn head_ends_with_its_first_empty_line() {
    for (bytes, expected) in [
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\nrest", Some(27)),
        ("GET / HTTP/1.1\nHost: a\n\nrest", Some(24)),
        ("GET / HTTP/1.1\r\nHost: a\r\n", None),
        ("GET / HTTP/1.1\r\nHost: a\r\n\r", None),
        ("", None),
    ] {
        assert_eq!(end(bytes.as_bytes(), 0), expected, "{bytes:?}");
        // However much of it was searched before.
        let before = 0..expected.unwrap_or(bytes.len());
        assert!(before.into_iter().all(|from| end(bytes.as_bytes(), from) == expected));
    }
}

#[test]
fn answers_are_those_of_go() {
    let close = "Content-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n";
    for (refusal, status, text) in [
        (Refusal::BadRequest, "400 Bad Request", "400 Bad Request"),
        (Refusal::TransferEncoding, "501 Not Implemented", "Unsupported transfer encoding"),
        (
            Refusal::MissingHost,
            "400 Bad Request: missing required Host header",
            "400 Bad Request: missing required Host header",
        ),
    ] {
        assert_eq!(refusal.answer(), format!("HTTP/1.1 {status}\r\n{close}{text}"));
    }
}
