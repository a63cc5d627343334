//! Development tasks of this repository: `cargo xtask <task>`.
//!
//! One module per task. A task is a plain function over the working copy; it prints its changes.

mod apply;
mod audit;
#[cfg(test)]
mod behavior;
mod bench;
mod cargo;
mod cel_go;
mod cel_spec;
mod compare;
mod components;
mod conformance;
mod dist;
mod envtest;
mod facts;
mod fuzz;
mod ginkgo;
mod go_test;
mod guided;
mod http;
mod integration;
mod kubectl;
mod laid_over;
mod machine;
mod mutations;
mod pages;
mod parts;
mod patches;
mod program;
mod seeds;
mod servers;
mod shared_etcd;
mod started;
mod suite;
#[cfg(test)]
mod tidy;
mod validation;

use clap::{Parser, Subcommand};

/// The command line.
#[derive(Debug, Parser)]
#[command(name = "xtask", about = "The chores of this repository")]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

/// The tasks.
#[derive(Debug, Subcommand)]
enum Chore {
    /// Run all tests, including those with real clients and with etcd; installs the parts they
    /// need.
    Test(suite::Args),
    /// Install the parts that tests with real clients need, and print their paths.
    Parts,
    /// Generate the tables of built-in types in crates/facts from the published Kubernetes schemas.
    Facts(facts::Args),
    /// Generate the setters of built-in types in crates/apply from the tables in crates/facts.
    Apply,
    /// Check that simulations detect broken rules (also part of `test`).
    Mutations,
    /// Check the house rules: layers, names, sizes (also part of `test`).
    Tidy,
    /// Check licences, versions and sources of dependencies (deny) and unused ones (machete).
    Audit,
    /// Run benchmarks, and write the result table and the figures on pages.
    Bench(bench::Args),
    /// Run the cases of the CEL specification, and write `crates/cel/conformance.md`.
    CelSpec(cel_spec::Args),
    /// Compare expressions with cel-go's results, and write `crates/cel/differences.md`.
    CelGo(cel_go::Args),
    /// Run scenarios with kube-controller-manager and with the controllers of `setpoint up`, and
    /// write `docs/original-controllers.md`.
    Compare(compare::Args),
    /// Run Kubernetes' own kubelet, scheduler and kube-proxy with `setpoint up` and with the
    /// originals, and write `docs/components.md`.
    Components(components::Args),
    /// Run Kubernetes' end-to-end specs against `setpoint up`, and write `docs/conformance.md`.
    Conformance(conformance::Args),
    /// Run a public project's suites against the binaries of `setpoint envtest install`, and write
    /// `docs/envtest/PROJECT.md`.
    Envtest(envtest::Args),
    /// Run Kubernetes' integration tests against `setpoint envtest serve`, and write
    /// `docs/integration.md`.
    Integration(integration::Args),
    /// Run kubectl's own tests against the program, and write `docs/kubectl.md`.
    Kubectl(kubectl::Args),
    /// Send generated objects to kube-apiserver and to `setpoint up`, compare the answers, and
    /// write `docs/validation.md`.
    Validation(validation::Args),
    /// Send sequences of writes to kube-apiserver and to `setpoint up`, and write
    /// `docs/sequences.md`.
    Sequences(validation::sequences::Args),
    /// Send sequences of writes of custom resources, whose schemas are drawn, to kube-apiserver and
    /// to `setpoint up`, and write `docs/custom.md`.
    Custom(validation::custom::Args),
    /// Send reads, watches and dry runs of deletions with drawn options to kube-apiserver and to
    /// `setpoint up`, and write `docs/reads.md`.
    Reads(validation::reads::Args),
    /// Watch what sequences of writes do, with drawn options, at kube-apiserver and at
    /// `setpoint up`, and write `docs/watches.md`.
    Watches(validation::watches::Args),
    /// Send writes with odd bodies, types and options to kube-apiserver and to `setpoint up`, and
    /// write `docs/bodies.md`.
    Bodies(validation::bodies::Args),
    /// Have kube-apiserver and `setpoint up` judge requests by drawn policies, quotas and ranges,
    /// and write `docs/admission.md`.
    Admission(validation::admission::Args),
    /// Compare discovery and the OpenAPI documents of kube-apiserver and of `setpoint up`, and
    /// write `docs/documents.md`.
    Documents(validation::documents::Args),
    /// Write and read every kind with kube-apiserver and `setpoint up` on one etcd, and write
    /// `docs/shared-etcd.md`.
    SharedEtcd(shared_etcd::Args),
    /// Patch generated objects here and with Kubernetes' libraries, compare the results, and write
    /// `docs/patches.md`.
    Patches(patches::Args),
    /// Play every controller's scenario with many seeds, and write `docs/seeds.md`.
    Seeds(seeds::Args),
    /// Copy measured figures from benches/RESULTS.md into the pages that state them.
    Pages,
    /// Build the program as it is shipped, and packages for PyPI and npm that carry it.
    Dist(dist::Args),
    /// Search for inputs that violate a property.
    Fuzz(fuzz::Args),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().chore {
        Chore::Test(args) => suite::run(&args),
        Chore::Parts => parts::Parts::install().map(|parts| println!("{parts:#?}")),
        Chore::Facts(args) => facts::run(&args),
        Chore::Apply => apply::run(),
        Chore::Mutations => mutations::run(),
        Chore::Tidy => suite::tidy(),
        Chore::Audit => audit::run(),
        Chore::Bench(args) => bench::run(&args),
        Chore::CelSpec(args) => cel_spec::run(&args),
        Chore::CelGo(args) => cel_go::run(&args),
        Chore::Compare(args) => compare::run(&args),
        Chore::Components(args) => components::run(&args),
        Chore::Conformance(args) => conformance::run(&args),
        Chore::Envtest(args) => envtest::run(&args),
        Chore::Integration(args) => integration::run(&args),
        Chore::Kubectl(args) => kubectl::run(&args),
        Chore::Validation(args) => validation::run(&args),
        Chore::Sequences(args) => validation::sequences::run(&args),
        Chore::Custom(args) => validation::custom::run(&args),
        Chore::Reads(args) => validation::reads::run(&args),
        Chore::Watches(args) => validation::watches::run(&args),
        Chore::Bodies(args) => validation::bodies::run(&args),
        Chore::Admission(args) => validation::admission::run(&args),
        Chore::Documents(args) => validation::documents::run(&args),
        Chore::SharedEtcd(args) => shared_etcd::run(&args),
        Chore::Patches(args) => patches::run(&args),
        Chore::Seeds(args) => seeds::run(&args),
        Chore::Pages => pages::run(),
        Chore::Dist(args) => dist::run(&args),
        Chore::Fuzz(args) => fuzz::run(&args),
    }
}
