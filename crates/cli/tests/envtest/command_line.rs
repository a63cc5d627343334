//! Command lines: help, unknown flags, bad values, and what is accepted without effect.

use crate::harness::{Start, assets};
use std::process::{Command, Output};

fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new(assets().join(program)).args(arguments).output().unwrap()
}

fn both(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

#[test]
fn help_shows_what_envtest_looks_for() {
    let has = |page: &str, flag: &str| page.lines().any(|line| line.trim_start().starts_with(flag));
    let output = run("kube-apiserver", &["--help"]);
    assert!(output.status.success());
    assert!(!has(&both(&output), "--insecure-port"), "envtest would pass it");
    assert!(has(&both(&output), "--secure-port"));
    let output = run("etcd", &["--help"]);
    assert!(output.status.success());
    assert!(has(&both(&output), "--unsafe-no-fsync"));
}

#[test]
fn unknown_flags_and_bad_values_are_refused_as_by_the_original() {
    for (arguments, error) in [
        (&["--nope=1"][..], "Error: unknown flag: --nope\n"),
        (&["--secure-port"], "Error: flag needs an argument: --secure-port\n"),
        (&["x"], "Error: \"kube-apiserver\" does not take any arguments, got [\"x\"]\n"),
        (
            &["--allow-privileged=maybe"],
            "Error: invalid argument \"maybe\" for \"--allow-privileged\" flag: strconv.ParseBool: parsing \"maybe\": invalid syntax\n",
        ),
    ] {
        let output = run("kube-apiserver", arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert_eq!(both(&output), error);
    }
    let output = run("kube-apiserver", &["--enable-admission-plugins=Nope", "--secure-port=0"]);
    assert_eq!(output.status.code(), Some(1));
    let said = both(&output);
    assert!(said.contains(r#"enable-admission-plugins plugin "Nope" is unknown"#), "{said}");
    let output = run("etcd", &["--nope"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(both(&output).starts_with("flag provided but not defined: -nope\n"));
    assert_eq!(run("etcd", &["--cert-file=x"]).status.code(), Some(1));
}

/// The flags that public suites add.
#[test]
fn flags_of_public_suites_are_accepted_and_those_without_effect_are_logged() {
    let environment = Start::default()
        .flag("--enable-admission-plugins=NamespaceLifecycle,MutatingAdmissionWebhook")
        .flag("--disable-admission-plugins=")
        .flag("--feature-gates=WatchList=false,NoLongerThere=true")
        .flag("--runtime-config=api/all=true,certificates.k8s.io/v1beta1=true")
        .flag("--service-cluster-ip-range=10.0.0.0/16")
        .flag("--advertise-address=127.0.0.1")
        .flag("--max-requests-inflight=0")
        .flag("--max-mutating-requests-inflight=500")
        .flag("--delete-collection-workers=5")
        .flag("--etcd-prefix=/anything")
        .flag("--audit-log-path=-")
        .flag("--allow_privileged")
        .flag("-v=4")
        .start();
    let log = environment.api_server.log();
    for (flag, why) in [
        ("feature-gates", "unrecognized feature gate: NoLongerThere"),
        ("runtime-config", "setpoint has no kinds of such a version"),
        ("delete-collection-workers", "it tunes a part"),
        ("v", "RUST_LOG"),
    ] {
        assert!(log.contains(&format!("--{flag} has no effect: {why}")), "{flag}: {log}");
    }
    assert!(!log.contains("allow-privileged"), "{log}");
}

#[test]
fn a_release_is_emulated_with_its_own_gates() {
    let environment = Start::default()
        .flag("--emulated-version=kube=1.34")
        .flag("--feature-gates=ConstrainedImpersonation=true,ImageVolume=true")
        .start();
    let log = environment.api_server.log();
    let why = "feature is PreAlpha at emulated version 1.34, min compatibility version 1.33";
    assert!(log.contains(why), "{log}");
    assert!(!log.contains("ImageVolume") && !log.contains("emulated-version has no"), "{log}");
    let output = run("kube-apiserver", &["--emulated-version=1.32", "--secure-port=0"]);
    assert_eq!(output.status.code(), Some(1));
    let said = both(&output);
    assert!(said.contains("emulation version 1.32 is not between [1.33, 1.36]"), "{said}");
}

#[test]
fn assets_are_where_use_says_and_a_second_time_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = || {
        let output = Command::new(env!("CARGO_BIN_EXE_setpoint"))
            .args(["envtest", "use", "1.36.x", "-p", "path", "--bin-dir"])
            .arg(folder.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", both(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let first = path();
    assert!(first.starts_with(&folder.path().join("k8s").display().to_string()), "{first}");
    for name in ["kube-apiserver", "etcd", "kubectl"] {
        assert!(std::path::Path::new(&first).join(name).is_file(), "{name}");
    }
    assert_eq!(path(), first);
}

#[test]
fn kubectl_runs_a_real_one_or_says_that_there_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let real = folder.path().join("real-kubectl");
    std::fs::write(&real, "#!/bin/sh\necho \"real $@\"\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&real, mode).unwrap();
    let kubectl = |real: Option<&std::path::Path>| {
        let mut command = Command::new(assets().join("kubectl"));
        // Its own folder is in PATH too.
        command.arg("--kubeconfig=x").arg("get").env("PATH", assets());
        match real {
            Some(real) => command.env("SETPOINT_KUBECTL", real),
            None => command.env_remove("SETPOINT_KUBECTL"),
        };
        command.output().unwrap()
    };
    let output = kubectl(Some(&real));
    assert_eq!(both(&output), "real --kubeconfig=x get\n");
    let output = kubectl(None);
    assert_eq!(output.status.code(), Some(127));
    assert!(both(&output).contains("there is no kubectl in PATH"), "{}", both(&output));
}
