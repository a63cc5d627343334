use super::*;

const HEAD: &str = "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\n";

fn parse(selections: &str) -> Result<Vec<(EgressType, Route)>, String> {
    let config = EgressConfig::parse(format!("{HEAD}{selections}").as_bytes());
    config.map(|config| config.routes.unwrap_or_default()).map_err(|error| error.to_string())
}

/// The selection of `cluster` with this connection.
fn cluster(connection: &str) -> String {
    format!("egressSelections: [{{name: cluster, connection: {connection}}}]")
}

#[test]
fn all_ways_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, "").unwrap();
        path
    };
    let (ca, cert, key) = (file("ca"), file("cert"), file("key"));
    let text = format!(
        r#"
egressSelections:
- name: master
  connection: {{proxyProtocol: Direct}}
- name: Etcd
  connection: {{proxyProtocol: HTTPConnect, transport: {{uds: {{udsName: /run/proxy}}}}}}
- name: cluster
  connection:
    proxyProtocol: HTTPConnect
    transport:
      tcp:
        url: https://127.0.0.1:8131
        tlsConfig: {{caBundle: {}, clientCert: {}, clientKey: {}, tlsServerName: proxy.example}}
"#,
        ca.display(),
        cert.display(),
        key.display()
    );
    let tls = Tls {
        ca_bundle: ca,
        client_cert: cert,
        client_key: key,
        tls_server_name: "proxy.example".to_owned(),
    };
    let proxy = Proxy { url: "https://127.0.0.1:8131".to_owned(), tls: Some(tls) };
    assert_eq!(
        parse(&text).unwrap(),
        [
            (EgressType::ControlPlane, Route::Direct),
            (EgressType::Etcd, Route::HttpConnectUnix("/run/proxy".into())),
            (EgressType::Cluster, Route::HttpConnect(proxy)),
        ]
    );
    let grpc = "{proxyProtocol: GRPC, transport: {uds: {udsName: /run/tunnel}}}";
    assert_eq!(
        parse(&cluster(grpc)).unwrap(),
        [(EgressType::Cluster, Route::Grpc("/run/tunnel".into()))]
    );
    assert_eq!(EgressConfig::parse(HEAD.as_bytes()).unwrap().routes, None);
}

#[test]
fn bad_documents_are_refused_in_the_originals_words() {
    let read = "failed to read egress selector config: ";
    let validate = "failed to validate egress selector configuration: ";
    let direct = "connection: {proxyProtocol: Direct}";
    for (text, start, rest) in [
        (
            cluster("{proxyProtocol: Direct}, foo: 1"),
            read,
            r#"strict decoding error: unknown field "egressSelections[0].foo""#,
        ),
        (
            cluster("{proxyProtocol: SOCKS}"),
            validate,
            r#"service.connection.protocol: Unsupported value: "SOCKS": supported values: "Direct", "HTTPConnect", "GRPC""#,
        ),
        (
            cluster("{proxyProtocol: Direct, transport: {}}"),
            validate,
            r#"service.connection.transport: Invalid value: "direct": config must be absent for direct connect"#,
        ),
        (
            cluster("{proxyProtocol: GRPC}"),
            validate,
            "service.connection.transport: Required value: transport must be set for GRPC",
        ),
        (
            cluster("{proxyProtocol: GRPC, transport: {tcp: {url: 'http://a'}}}"),
            validate,
            "service.connection.uds: Required value: UDS must be set with GRPC",
        ),
        (
            cluster("{proxyProtocol: HTTPConnect, transport: {uds: {}}}"),
            validate,
            r#"service.connection.udsName: Invalid value: "nil": must be present for UDS connections"#,
        ),
        (
            cluster("{proxyProtocol: HTTPConnect, transport: {tcp: {url: 'ftp://a'}}}"),
            validate,
            r#"service.connection.url: Invalid value: "ftp://a": supported connection protocols are http:// and https://"#,
        ),
        (
            cluster("{proxyProtocol: HTTPConnect, transport: {tcp: {url: 'https://a'}}}"),
            validate,
            "service.connection.tlsConfig: Required value: TLSConfig must be present when using HTTPS",
        ),
        (
            cluster(
                "{proxyProtocol: HTTPConnect, transport: {tcp: {url: 'https://a', tlsConfig: {clientCert: /nowhere}}}}",
            ),
            validate,
            r#"[service.connection.tlsConfig.clientCert: Invalid value: "/nowhere": TLS client cert does not exist, service.connection.tlsConfig.clientKey: Invalid value: "nil": Using TLS requires requires clientKey]"#,
        ),
        (
            format!("egressSelections: [{{name: nodes, {direct}}}]"),
            validate,
            r#"service.connection: Unsupported value: "nodes": supported values: "cluster", "controlplane", "etcd""#,
        ),
        (
            format!(
                "egressSelections: [{{name: master, {direct}}}, {{name: controlplane, {direct}}}]"
            ),
            validate,
            r#"service.connection[1]: Duplicate value: "controlplane""#,
        ),
    ] {
        assert_eq!(parse(&text).unwrap_err(), format!("{start}{rest}"), "{text}");
    }
    let missing = EgressConfig::load(FilePath::new("/nowhere/egress.yaml")).unwrap_err();
    assert_eq!(
        missing.to_string(),
        "egress-selector-config-file /nowhere/egress.yaml does not exist"
    );
}
