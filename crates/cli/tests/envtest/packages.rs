//! The packages for other languages, installed and used as their users do.

use crate::clients::{ok, part};
use crate::harness::assets;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The folder of the packages, which `cargo xtask dist` makes of the program under test.
fn packages() -> &'static Path {
    static PACKAGES: OnceLock<PathBuf> = OnceLock::new();
    PACKAGES.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages");
        let mut dist = Command::new(part("SETPOINT_TEST_XTASK"));
        dist.args(["dist", "--level", "1", "--program", env!("CARGO_BIN_EXE_setpoint"), "--out"]);
        // Where it finds the workspace.
        let workspace = std::path::absolute("../../xtask").unwrap();
        ok(dist.arg(&folder).env("CARGO_MANIFEST_DIR", workspace));
        folder
    })
}

/// Copies a suite into a project.
fn suite(name: &str, project: &Path) {
    let suite = Path::new("tests/envtest/packages").join(name);
    std::fs::copy(suite, project.join(name)).unwrap();
}

#[test]
fn wheel_gives_pytest_its_fixtures() {
    let python = part("SETPOINT_TEST_PYTHON");
    let project = tempfile::tempdir().unwrap();
    let project = project.path();
    let environment = project.join("venv");
    ok(Command::new(&python).args(["-m", "venv", "--without-pip"]).arg(&environment));
    let own = environment.join("bin/python");
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "--disable-pip-version-check", "--python"]).arg(&own);
    pip.args(["install", "--quiet", "--no-index", "--find-links"]).arg(packages());
    ok(pip.arg("setpoint"));
    // pytest and the client are installed already.
    let site = |python: &Path| {
        let script = "import sysconfig; print(sysconfig.get_path('purelib'))";
        PathBuf::from(ok(Command::new(python).args(["-c", script])).trim())
    };
    std::fs::write(site(&own).join("parts.pth"), site(&python).to_str().unwrap()).unwrap();
    assert!(ok(Command::new(environment.join("bin/setpoint")).arg("version")).starts_with("v1."));
    suite("test_setpoint.py", project);
    let mut pytest = Command::new(&own);
    pytest.args(["-m", "pytest", "-p", "no:cacheprovider"]).arg(project);
    let report = ok(pytest.current_dir(project).env_remove("SETPOINT"));
    assert!(report.contains("6 passed"), "{report}");
}

#[test]
fn npm_package_gives_vitest_its_fixtures() {
    let parts = part("SETPOINT_TEST_NODE_MODULES");
    let project = tempfile::tempdir().unwrap();
    let project = project.path();
    std::fs::write(project.join("package.json"), r#"{"private": true, "type": "module"}"#).unwrap();
    let mut packages = std::fs::read_dir(packages()).unwrap().map(|entry| entry.unwrap().path());
    let package = packages.find(|path| path.extension().is_some_and(|end| end == "tgz")).unwrap();
    let mut npm = Command::new("npm");
    npm.args(["install", "--offline", "--no-audit", "--no-fund", "--silent"]).arg(package);
    ok(npm.current_dir(project));
    // vitest and the client are installed already.
    let modules = project.join("node_modules");
    std::fs::create_dir(modules.join("@kubernetes")).unwrap();
    for name in ["vitest", "@kubernetes/client-node"] {
        symlink(parts.join(name), modules.join(name)).unwrap();
    }
    assert!(ok(Command::new(modules.join(".bin/setpoint")).arg("version")).starts_with("v1."));
    suite("setpoint.test.js", project);
    let mut vitest = Command::new("node");
    vitest.arg(modules.join("vitest/vitest.mjs")).args(["run", "--testTimeout=60000"]);
    let report = ok(vitest.current_dir(project).env_remove("SETPOINT").env("NO_COLOR", "1"));
    assert!(report.contains("7 passed"), "{report}");
}

#[test]
fn junit_extension_gives_each_test_a_plane() {
    let jars = part("SETPOINT_TEST_JUNIT").join("*");
    let project = tempfile::tempdir().unwrap();
    let project = project.path();
    suite("SetpointTest.java", project);
    let extension = "../../packages/java/setpoint/SetpointExtension.java";
    let mut javac = Command::new("javac");
    javac.arg("-cp").arg(&jars).arg("-d").arg(project).arg(extension);
    ok(javac.arg(project.join("SetpointTest.java")));
    let class_path = format!("{}:{}", jars.display(), project.display());
    let mut java = Command::new("java");
    java.args(["-cp", &class_path, "org.junit.platform.console.ConsoleLauncher"]);
    java.args(["--disable-ansi-colors", "--disable-banner", "--select-class=SetpointTest"]);
    let report = ok(java.current_dir(project).env("SETPOINT", env!("CARGO_BIN_EXE_setpoint")));
    assert!(report.contains("6 tests successful"), "{report}");
}

/// client-go against the installed binaries: encodings, informers, leader election, users, webhooks
/// and definitions of the suite; and `packages/go`.
#[test]
fn go_suite_passes_unchanged() {
    let mut suite = Command::new(part("SETPOINT_TEST_GO_SUITE"));
    suite.args(["-test.v", "-test.timeout=5m"]).env("KUBEBUILDER_ASSETS", assets());
    let report = ok(suite.env_remove("SETPOINT").current_dir(assets()));
    assert!(report.ends_with("PASS\n") && !report.contains("--- SKIP"), "{report}");
}

/// With the feature gate, clients that prefer CBOR speak it: typed and dynamic ones, and their
/// watches.
#[test]
fn go_clients_that_prefer_cbor_speak_it_with_the_feature_gate() {
    let mut suite = Command::new(part("SETPOINT_TEST_GO_SUITE"));
    let tests = "TestInformers|TestUsers|TestEncodings|TestDefinitions";
    suite.args(["-test.v", "-test.timeout=5m", "-test.run", tests]);
    suite.env("SUITE_API_SERVER_FLAGS", "--feature-gates=CBORServingAndStorage=true");
    for gate in ["KUBE_FEATURE_ClientsAllowCBOR", "KUBE_FEATURE_ClientsPreferCBOR"] {
        suite.env(gate, "true");
    }
    suite.env("KUBEBUILDER_ASSETS", assets()).env_remove("SETPOINT").current_dir(assets());
    let report = ok(&mut suite);
    assert_eq!(report.matches("\n--- PASS: ").count(), 4, "{report}");
    assert!(report.contains("--- PASS: TestEncodings/application/cbor"), "{report}");
}

/// Clients that may use CBOR work as before. Those that prefer it have their first body refused,
/// as with a kube-apiserver by default, and use JSON from then on.
#[test]
fn go_clients_that_know_cbor_fall_back_to_json() {
    let suite = |variables: &[(&str, &str)], tests: &str| {
        let mut suite = Command::new(part("SETPOINT_TEST_GO_SUITE"));
        suite.args(["-test.v", "-test.timeout=5m", "-test.run", tests]);
        suite.env("KUBEBUILDER_ASSETS", assets()).envs(variables.iter().copied());
        suite.env_remove("SETPOINT").current_dir(assets());
        suite
    };
    let allowed = ("KUBE_FEATURE_ClientsAllowCBOR", "true");
    let report = ok(&mut suite(&[allowed], "TestDefinitions"));
    assert!(report.contains("--- PASS: TestDefinitions"), "{report}");
    let preferred = ("KUBE_FEATURE_ClientsPreferCBOR", "true");
    let report = ok(&mut suite(&[allowed, preferred], "TestInformers|TestUsers|TestEncodings"));
    assert_eq!(report.matches("\n--- PASS: ").count(), 3, "{report}");
    let refused = suite(&[allowed, preferred], "TestDefinitions").output().unwrap();
    let report = String::from_utf8_lossy(&refused.stdout);
    assert!(report.contains("body of the request was in an unknown format"), "{report}");
}
