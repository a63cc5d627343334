//! All plugins of a registry, and the order in which they run.

use super::counted::Counted;
use super::decoded::Decoded;
use super::policy::{MutatingAdmissionPolicy, ValidatingAdmissionPolicy};
use super::reinvocation::fingerprint;
use super::webhook::{MutatingAdmissionWebhook, ValidatingAdmissionWebhook};
use super::{Admission, AdmissionPlugins, Preconditions, Review};
use super::{namespace_lifecycle, service_account};
use crate::figures::{Distribution, Labels};
use crate::webhook::WebhookClients;
use serde_json::Value;
use setpoint_object::ApiError;
use std::sync::Arc;
use tokio::time::Instant;

/// A plugin of Kubernetes that asks stored policies or webhooks.
pub(super) trait Stored: Admission {
    /// Whether one of them may match a write of this kind.
    fn may_see(&self, review: &Review<'_>) -> bool;
}

/// The plugins in call order.
#[derive(Debug)]
pub(crate) struct Chain {
    /// What plugins read of other objects.
    pub(super) decoded: Decoded,
    /// Kubernetes' own, before all others.
    built_in: Vec<Counted<Box<dyn Admission>>>,
    added: Vec<Counted<Arc<dyn Admission>>>,
    mutating_policy: Option<Counted<Box<dyn Stored>>>,
    validating_policy: Option<Counted<Box<dyn Stored>>>,
    mutating_webhook: Option<Counted<Box<dyn Stored>>>,
    validating_webhook: Option<Counted<Box<dyn Stored>>>,
    /// Kubernetes' own, after all others.
    last: Vec<Counted<Box<dyn Admission>>>,
}
impl Chain {
    /// Kubernetes' plugins, in its order, with `added`, policies and webhooks, if they can be
    /// called, between them. `has_accounts`: pods get service accounts.
    pub(crate) fn new(
        mut plugins: AdmissionPlugins,
        added: Vec<Arc<dyn Admission>>,
        clients: Option<Arc<dyn WebhookClients>>,
        has_accounts: bool,
    ) -> Self {
        if !has_accounts {
            plugins.first.retain(|plugin| plugin.name() != service_account::NAME);
        }
        let runs = |name: &str| plugins.names().any(|known| known == name);
        let clients_of = |name: &str| clients.clone().filter(|_| runs(name));
        let boxed = |plugin: Option<Box<dyn Stored>>| plugin.map(Counted::new);
        let manifests = |name: &str| plugins.manifests(name);
        let name = "MutatingAdmissionPolicy";
        let mutating_policy =
            runs(name).then(|| Box::new(MutatingAdmissionPolicy::new(manifests(name))) as _);
        let name = "ValidatingAdmissionPolicy";
        let validating_policy =
            runs(name).then(|| Box::new(ValidatingAdmissionPolicy::new(manifests(name))) as _);
        let name = "MutatingAdmissionWebhook";
        let mutating_webhook = clients_of(name)
            .map(|clients| Box::new(MutatingAdmissionWebhook::new(clients, manifests(name))) as _);
        let name = "ValidatingAdmissionWebhook";
        let validating_webhook = clients_of(name).map(|clients| {
            Box::new(ValidatingAdmissionWebhook::new(clients, manifests(name))) as _
        });
        Self {
            decoded: Decoded::new(),
            mutating_policy: boxed(mutating_policy),
            validating_policy: boxed(validating_policy),
            mutating_webhook: boxed(mutating_webhook),
            validating_webhook: boxed(validating_webhook),
            built_in: plugins.first.into_iter().map(Counted::new).collect(),
            added: added.into_iter().map(Counted::new).collect(),
            last: plugins.last.into_iter().map(Counted::new).collect(),
        }
    }
    /// Whether anything but Kubernetes' own plugins sees the objects of a write.
    pub(crate) fn is_seen(&self, review: &Review<'_>) -> bool {
        !self.added.is_empty() || self.stored().any(|plugin| plugin.plugin().may_see(review))
    }
    /// The plugins that ask what is stored.
    fn stored(&self) -> impl Iterator<Item = &Counted<Box<dyn Stored>>> {
        let policies = self.mutating_policy.iter().chain(&self.validating_policy);
        policies.chain(&self.mutating_webhook).chain(&self.validating_webhook)
    }
    /// How long each plugin took.
    pub(crate) fn counted(&self) -> Vec<(Labels, Distribution)> {
        let built_in = self.built_in.iter().flat_map(Counted::series);
        let built_in = built_in.chain(self.stored().flat_map(Counted::series));
        let built_in = built_in.chain(self.last.iter().flat_map(Counted::series));
        built_in.chain(self.added.iter().flat_map(Counted::series)).collect()
    }
    /// Runs the mutating halves.
    pub(crate) async fn mutate(
        &self,
        review: &Review<'_>,
        object: &mut Value,
    ) -> Result<(), ApiError> {
        let (begun, span) = (Instant::now(), review.attributes.stage("Mutating admission"));
        let outcome = self.mutate_all(review, object).await;
        drop(span);
        review.inner.figures.steps.ran(review.operation as usize, false, &outcome, begun.elapsed());
        outcome
    }
    async fn mutate_all(&self, review: &Review<'_>, object: &mut Value) -> Result<(), ApiError> {
        self.mutate_built_in(review, object).await?;
        // The object's state after each plugin that may be reinvoked.
        let mut left: Vec<(&Counted<Arc<dyn Admission>>, u64)> = Vec::new();
        for plugin in self.added.iter().filter(|plugin| plugin.mutates(review)) {
            plugin.mutate(review, object).await?;
            if plugin.reinvoked() {
                left.push((plugin, fingerprint(object)));
            }
        }
        if review.is_unseen {
            return Ok(());
        }
        let policies = self.mutating_policy.as_ref().filter(|policies| policies.mutates(review));
        if let Some(policies) = policies {
            policies.mutate(review, object).await?;
        }
        let webhooks = self.mutating_webhook.as_ref().filter(|webhooks| webhooks.handles(review));
        if let Some(webhooks) = webhooks {
            webhooks.ask_to_mutate(review, object).await?;
        }
        let by_policies = review.policy_reinvocation.lock().has_changed();
        let by_webhooks = review.reinvocation.lock().has_changed();
        if by_policies || by_webhooks {
            self.mutate_built_in(review, object).await?;
        }
        for (plugin, as_left) in left {
            if fingerprint(object) != as_left {
                plugin.mutate(review, object).await?;
            }
        }
        let are_due = review.policy_reinvocation.lock().is_due(object);
        if let Some(policies) = policies.filter(|_| are_due) {
            review.policy_reinvocation.lock().begin_second();
            policies.mutate(review, object).await?;
        }
        let are_due = review.reinvocation.lock().is_due(object);
        if let Some(webhooks) = webhooks.filter(|_| are_due) {
            review.reinvocation.lock().begin_second();
            webhooks.ask_to_mutate(review, object).await?;
        }
        Ok(())
    }
    async fn mutate_built_in(
        &self,
        review: &Review<'_>,
        object: &mut Value,
    ) -> Result<(), ApiError> {
        for plugin in self.built_in.iter().filter(|plugin| plugin.mutates(review)) {
            plugin.mutate(review, object).await?;
        }
        Ok(())
    }
    /// Runs the validating halves.
    pub(crate) async fn validate(
        &self,
        review: &Review<'_>,
        object: Option<&Value>,
    ) -> Result<(), ApiError> {
        let (begun, span) = (Instant::now(), review.attributes.stage("Validating admission"));
        let outcome = self.validate_all(review, object).await;
        drop(span);
        review.inner.figures.steps.ran(review.operation as usize, true, &outcome, begun.elapsed());
        outcome
    }
    async fn validate_all(
        &self,
        review: &Review<'_>,
        object: Option<&Value>,
    ) -> Result<(), ApiError> {
        for plugin in self.built_in.iter().filter(|plugin| plugin.handles(review)) {
            plugin.validate(review, object).await?;
        }
        for plugin in self.added.iter().filter(|plugin| plugin.handles(review)) {
            plugin.validate(review, object).await?;
        }
        let asked = |plugin: &&Counted<_>| !review.is_unseen && plugin.handles(review);
        for policies in self.validating_policy.iter().filter(asked) {
            policies.validate(review, object).await?;
        }
        for webhooks in self.validating_webhook.iter().filter(asked) {
            webhooks.ask_to_validate(review, object).await?;
        }
        for plugin in self.last.iter().filter(|plugin| plugin.handles(review)) {
            plugin.validate(review, object).await?;
        }
        Ok(())
    }
    /// Repeats the decisions whose conditions did not hold at the commit: whether the namespace
    /// still accepts new objects, and whether its quotas cover the object.
    pub(crate) async fn decide_again(
        &self,
        review: &mut Review<'_>,
        object: &Value,
    ) -> Result<(), ApiError> {
        review.preconditions = Preconditions { have_failed: true, ..Preconditions::default() };
        let name = "NamespaceLifecycle";
        let lifecycle = self.built_in.iter().find(|plugin| plugin.name() == name);
        if lifecycle.is_some_and(|plugin| plugin.handles(review)) {
            namespace_lifecycle::check(review).await?;
        }
        let quota = self.last.iter().find(|plugin| plugin.name() == "ResourceQuota");
        if let Some(quota) = quota.filter(|plugin| plugin.handles(review)) {
            quota.validate(review, Some(object)).await?;
        }
        Ok(())
    }
}
