//! All questions at once.

use super::capacity::{self, Seen};
use super::report::{Answered, Question, Report, Verdict};
use super::{account, artefacts, compute, expose, filesystem, fit, hub, names, network, overlay, price, zone};
use crate::aws::ec2::Ec2;
use crate::aws::{Aws, quotas};
use crate::config::{Pins, Spec, unverified};
use crate::hub::Hub;
use crate::secret::Secret;

/// What the questions are about, and with what they are asked.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    pub spec: &'a Spec,
    pub aws: &'a Aws,
    pub http: &'a reqwest::Client,
    pub hub_token: Option<&'a Secret>,
    /// Of an earlier plan: what is pinned is kept, and not asked again.
    pub pins: Option<&'a Pins>,
}

/// Asks everything. The pins are whole only if no answer is red.
pub async fn run(inputs: Inputs<'_>) -> (Report, Pins) {
    let Inputs { spec, aws, http, hub_token, pins } = inputs;
    let hub = Hub::new(http.clone(), &spec.hub.endpoint, hub_token.cloned());
    let (of_aws, of_hub, (images, image_pins), (charts, chart_pins)) =
        tokio::join!(ask_aws(aws, spec, pins), ask_hub(&hub, spec, pins, hub_token.is_some()), artefacts::images(http, spec, pins), artefacts::charts(http, spec, pins));
    let (answers_of_aws, account, mut resolved) = of_aws;
    let (answers_of_hub, weights) = of_hub;
    let mut answers = answers_of_aws;
    answers.extend(answers_of_hub);
    answers.extend(images);
    answers.extend(charts);
    answers.push(compute::compute(spec));
    answers.push(filesystem::size(spec, weights.as_ref()));
    answers.push(fit::fit(spec));
    answers.extend(expose::expose(spec));
    answers.extend(overlay::overlay(spec));
    resolved.images = image_pins;
    resolved.charts = chart_pins;
    resolved.weights = weights.unwrap_or_default();
    (Report { account, region: aws.region.clone(), answers, unverified: unverified(spec) }, resolved)
}

async fn ask_aws(aws: &Aws, spec: &Spec, pins: Option<&Pins>) -> (Vec<Answered>, Option<String>, Pins) {
    let ec2 = Ec2::new(aws);
    let types = [spec.instance.type_name.as_str(), spec.system_instance.type_name.as_str()];
    let asked = tokio::join!(
        account::credentials(aws),
        quotas::quota(aws, "ec2", &spec.instance.quota.code),
        quotas::quota(aws, "ec2", &spec.system_instance.quota.code),
        ec2.running(),
        ec2.describe_types(&types),
        zone::offering(aws, spec, pins),
        network::room(aws, spec),
        names::names(aws, spec, pins),
        artefacts::addon_versions(aws, spec, pins),
        price::prices(aws, spec, pins),
    );
    let ((credentials, account), gpu_quota, system_quota, running, described, (offering, zone), [vpcs, elastic_addresses], names, (addons, addon_pins), (price, prices)) = asked;
    let seen = Seen { region: &aws.region, running: &running, described: &described };
    let others = vec![
        offering,
        capacity::instance_types(spec, &seen),
        capacity::quota("quota-gpu", &spec.instance, spec.gpu.nodes, gpu_quota, &spec.name, &seen),
        capacity::quota("quota-system", &spec.system_instance, spec.system.nodes, system_quota, &spec.name, &seen),
        vpcs,
        elastic_addresses,
        network::addresses(spec, &seen),
        names,
        addons,
        price,
    ];
    let (zone, zone_id) = zone.map(|zone| (zone.name, zone.id)).unwrap_or_default();
    let pins = Pins { addons: addon_pins, zone, zone_id, prices, ..Pins::default() };
    let answers = std::iter::once(credentials).chain(others.into_iter().map(|answered| told_once(answered, account.is_some()))).collect();
    (answers, account, pins)
}

async fn ask_hub(hub: &Hub, spec: &Spec, pins: Option<&Pins>, there_is_a_token: bool) -> (Vec<Answered>, Option<crate::config::WeightsPin>) {
    let (token, (access, weights)) = tokio::join!(hub::token(hub, there_is_a_token), hub::access(hub, spec, pins, there_is_a_token));
    (vec![token, access], weights)
}

/// With refused credentials every other answer of AWS is the same refusal.
fn told_once(answered: Answered, credentials_are_good: bool) -> Answered {
    match answered.verdict {
        Verdict::Warn | Verdict::Red if !credentials_are_good => Question::new(answered.question).skipped("needs credentials"),
        _ => answered,
    }
}
