//! Runs the checks on the corpus and on mutants of it.
#![allow(clippy::unwrap_used, reason = "a test")]

mod mutate;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::panic;
use std::path::{Path, PathBuf};

/// Maximum size of a committed input in bytes.
const INPUT_BYTES_MAX: usize = 4096;

/// Checks each input of a target's corpus and `n_mutants` mutants of each, the same ones every
/// time.
fn replay(target: &str, n_mutants: usize, check: fn(&[u8])) {
    let folder = Path::new("corpus").join(target);
    let entries = std::fs::read_dir(&folder).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!((10..=100).contains(&paths.len()), "{} inputs in {}", paths.len(), folder.display());
    let inputs: Vec<Vec<u8>> = paths.iter().map(|path| std::fs::read(path).unwrap()).collect();
    for (path, input) in paths.iter().zip(&inputs) {
        assert!(input.len() <= INPUT_BYTES_MAX, "{}", path.display());
        // Shown if the check fails.
        println!("{}", path.display());
        check(input);
    }
    let mut rng = SmallRng::seed_from_u64(1);
    for (path, input) in paths.iter().zip(&inputs) {
        for _ in 0..n_mutants {
            let mutant = mutate::mutant(input, &inputs, &mut rng);
            let failed = panic::catch_unwind(|| check(&mutant)).is_err();
            assert!(!failed, "a mutant of {}: {}", path.display(), mutant.escape_ascii());
        }
    }
}

#[test]
fn admission_holds_for_the_corpus_and_its_mutants() {
    replay("admission", 200, setpoint_fuzz::admission::check);
}

#[test]
fn encryption_holds_for_the_corpus_and_its_mutants() {
    replay("encryption", 40, setpoint_fuzz::encryption::check);
}

#[test]
fn frames_hold_for_the_corpus_and_its_mutants() {
    replay("frames", 500, setpoint_fuzz::frames::check);
}

#[test]
fn lists_hold_for_the_corpus_and_its_mutants() {
    replay("list", 500, setpoint_fuzz::list::check);
}

#[test]
fn cbor_holds_for_the_corpus_and_its_mutants() {
    replay("cbor", 300, setpoint_fuzz::cbor::check);
}

#[test]
fn expressions_hold_for_the_corpus_and_its_mutants() {
    replay("cel", 100, setpoint_fuzz::cel::check);
}

#[test]
fn certificates_hold_for_the_corpus_and_its_mutants() {
    replay("certificate", 200, setpoint_fuzz::certificate::check);
}

#[test]
fn patterns_hold_for_the_corpus_and_its_mutants() {
    replay("pattern", 100, setpoint_fuzz::pattern::check);
}

#[test]
fn resource_versions_hold_for_the_corpus_and_its_mutants() {
    replay("resource_version", 500, setpoint_fuzz::resource_version::check);
}

#[test]
fn reviews_hold_for_the_corpus_and_its_mutants() {
    replay("review", 200, setpoint_fuzz::review::check);
}

#[test]
fn saved_lists_hold_for_the_corpus_and_its_mutants() {
    replay("saved", 500, setpoint_fuzz::saved::check);
}

#[test]
fn skims_hold_for_the_corpus_and_its_mutants() {
    replay("skim", 500, setpoint_fuzz::skim::check);
}

#[test]
fn tokens_hold_for_the_corpus_and_their_mutants() {
    replay("token", 100, setpoint_fuzz::token::check);
}

#[test]
fn audit_policies_hold_for_the_corpus_and_its_mutants() {
    replay("audit_policy", 200, setpoint_fuzz::audit_policy::check);
}

#[test]
fn authentication_configurations_hold_for_the_corpus_and_its_mutants() {
    replay("authentication_config", 100, setpoint_fuzz::authentication_config::check);
}

#[test]
fn configurations_of_egress_selectors_hold_for_the_corpus_and_its_mutants() {
    replay("egress_config", 100, setpoint_fuzz::egress_config::check);
}

#[test]
fn authorization_configurations_hold_for_the_corpus_and_its_mutants() {
    replay("authorization_config", 100, setpoint_fuzz::authorization_config::check);
}

#[test]
fn key_sets_hold_for_the_corpus_and_its_mutants() {
    replay("jwks", 200, setpoint_fuzz::jwks::check);
}

#[test]
fn policies_hold_for_the_corpus_and_its_mutants() {
    replay("policy", 5, setpoint_fuzz::policy::check);
}

#[test]
fn request_headers_hold_for_the_corpus_and_its_mutants() {
    replay("request_header", 200, setpoint_fuzz::request_header::check);
}

#[test]
fn answers_of_webhooks_hold_for_the_corpus_and_its_mutants() {
    replay("webhook_answer", 5, setpoint_fuzz::webhook_answer::check);
}

#[test]
fn applied_configurations_hold_for_the_corpus_and_its_mutants() {
    replay("apply", 100, setpoint_fuzz::apply::check);
}

#[test]
fn bodies_hold_for_the_corpus_and_its_mutants() {
    replay("body", 100, setpoint_fuzz::body::check);
}

#[test]
fn schemas_of_definitions_hold_for_the_corpus_and_its_mutants() {
    replay("crd_schema", 60, setpoint_fuzz::crd_schema::check);
}

#[test]
fn schedules_hold_for_the_corpus_and_its_mutants() {
    replay("cron", 300, setpoint_fuzz::cron::check);
}

#[test]
fn field_selectors_hold_for_the_corpus_and_its_mutants() {
    replay("field_selector", 300, setpoint_fuzz::field_selector::check);
}

#[test]
fn shard_selectors_hold_for_the_corpus_and_its_mutants() {
    replay("shard_selector", 300, setpoint_fuzz::shard_selector::check);
}

#[test]
fn sets_of_fields_hold_for_the_corpus_and_its_mutants() {
    replay("field_set", 200, setpoint_fuzz::field_set::check);
}

#[test]
fn json_paths_hold_for_the_corpus_and_its_mutants() {
    replay("json_path", 300, setpoint_fuzz::json_path::check);
}

#[test]
fn label_selectors_hold_for_the_corpus_and_its_mutants() {
    replay("label_selector", 300, setpoint_fuzz::label_selector::check);
}

#[test]
fn patches_hold_for_the_corpus_and_its_mutants() {
    replay("patch", 100, setpoint_fuzz::patch::check);
}

#[test]
fn protobuf_holds_for_the_corpus_and_its_mutants() {
    replay("protobuf", 200, setpoint_fuzz::protobuf::check);
}

#[test]
fn quantities_hold_for_the_corpus_and_its_mutants() {
    replay("quantity", 300, setpoint_fuzz::quantity::check);
}

#[test]
fn parents_of_traces_hold_for_the_corpus_and_its_mutants() {
    replay("traceparent", 500, setpoint_fuzz::traceparent::check);
}

#[test]
fn requests_for_certificates_hold_for_the_corpus_and_its_mutants() {
    replay("certificate_request", 20, setpoint_fuzz::certificate_request::check);
}

#[test]
fn frames_of_grpc_hold_for_the_corpus_and_its_mutants() {
    replay("grpc_frames", 500, setpoint_fuzz::grpc_frames::check);
}

#[test]
fn configurations_of_tracing_hold_for_the_corpus_and_its_mutants() {
    replay("tracing_config", 200, setpoint_fuzz::tracing_config::check);
}
