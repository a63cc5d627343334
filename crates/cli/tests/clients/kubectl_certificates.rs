//! `kubectl certificate`: a person approves a request, the controller of `setpoint up` signs it,
//! and the certificate authenticates its owner.

use crate::server::Server;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DnType, KeyPair};

/// A request for a client certificate, as a manifest; and the key.
fn request(name: &str, user: &str, group: &str) -> (String, KeyPair) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, group);
    params.distinguished_name.push(DnType::CommonName, user);
    let key = KeyPair::generate().unwrap();
    let request = STANDARD.encode(params.serialize_request(&key).unwrap().pem().unwrap());
    let manifest = format!(
        "apiVersion: certificates.k8s.io/v1\nkind: CertificateSigningRequest\nmetadata: {{name: {name}}}\n\
         spec: {{signerName: kubernetes.io/kube-apiserver-client, usages: [client auth], request: {request}}}\n"
    );
    (manifest, key)
}

#[test]
fn approved_certificate_authenticates() {
    let options = ["--authorization-mode=RBAC".as_ref(), "--controllers=*".as_ref()];
    let server = Server::start_with(&options);
    let kubectl = &server.kubectl();
    let (manifest, key) = request("ann", "ann", "devs");
    server.file("ann.yaml", &manifest);
    server.file("ann.key", &key.serialize_pem());
    kubectl.ok("create -f ann.yaml");
    let pending = kubectl.ok("get csr ann");
    assert!(pending.contains("Pending"), "{pending}");
    let certificate = "get csr ann -o jsonpath={.status.certificate}";
    assert_eq!(kubectl.ok(certificate), "", "nobody has approved it");

    let approved = kubectl.ok("certificate approve ann");
    assert_eq!(approved, "certificatesigningrequest.certificates.k8s.io/ann approved\n");
    kubectl.eventually("get csr ann", |table| table.contains("Approved,Issued"));
    let pem = STANDARD.decode(kubectl.ok(certificate)).unwrap();
    server.file("ann.crt", std::str::from_utf8(&pem).unwrap());
    kubectl.ok("config set-credentials ann --client-certificate=ann.crt --client-key=ann.key");
    let who = kubectl.ok("--user=ann auth whoami");
    assert!(who.contains("ann") && who.contains("devs"), "{who}");
    let refused = kubectl.fails("--user=ann get pods");
    assert!(refused.contains(r#"User "ann" cannot list resource "pods""#), "{refused}");
    kubectl.ok("create rolebinding devs --clusterrole=view --group=devs");
    kubectl.eventually("--user=ann get pods", |said| said.contains("No resources found"));
}

#[test]
fn denied_request_gets_no_certificate() {
    let server = Server::start_with(&["--controllers=*".as_ref()]);
    let kubectl = &server.kubectl();
    let (manifest, _key) = request("bob", "bob", "devs");
    server.file("bob.yaml", &manifest);
    kubectl.ok("create -f bob.yaml");
    let denied = kubectl.ok("certificate deny bob");
    assert_eq!(denied, "certificatesigningrequest.certificates.k8s.io/bob denied\n");
    let table = kubectl.ok("get csr bob");
    assert!(table.contains("Denied") && !table.contains("Issued"), "{table}");
    assert_eq!(kubectl.ok("get csr bob -o jsonpath={.status.certificate}"), "");
}
