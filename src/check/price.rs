//! What an hour costs, by the Price List API or by `--price`; the prices are pinned.

use super::report::{Answered, Question};
use crate::aws::Aws;
use crate::aws::pricing::{self, Offer};
use crate::config::{Pins, Prices, Spec};
use crate::engine::clock;
use crate::error::{Kind, ServiceError};

/// `price`
pub(super) async fn prices(aws: &Aws, spec: &Spec, pins: Option<&Pins>) -> (Answered, Prices) {
    let question = Question::new("price");
    let what = format!("{} in {}", spec.instance.type_name, aws.region);
    let whole = |prices: &&Prices| prices.gpu_instance_hour > 0.0 && (prices.load_balancer_hour > 0.0 || !spec.exposed());
    let pinned = pins.map(|pins| &pins.prices).filter(|prices| prices.source.ends_with(&what)).filter(whole);
    if let Some(prices) = pinned.filter(|prices| spec.price_gpu_hour.is_none_or(|price| price == prices.gpu_instance_hour)) {
        return (question.ok(words(prices, spec)), prices.clone());
    }
    let (gpu, system, cluster, nat, balancer, filesystem) = tokio::join!(
        instance(aws, &spec.instance.type_name),
        instance(aws, &spec.system_instance.type_name),
        first(aws, "AmazonEKS", &[("operation", "CreateOperation")], |offer| offer.usage.ends_with("AmazonEKS-Hours:perCluster")),
        first(aws, "AmazonEC2", &[("productFamily", "NAT Gateway")], |offer| offer.usage.ends_with("NatGateway-Hours")),
        balancer(aws, spec),
        first(aws, "AmazonFSx", &[("fileSystemType", "Lustre"), ("storageType", "SSD")], |offer| stores_at(offer, spec.storage.throughput)),
    );
    let trouble = gpu.as_ref().err().cloned();
    let known = |price: Result<Option<f64>, ServiceError>| price.ok().flatten().unwrap_or_default();
    let list = format!("Price List API, {}", clock::now().strftime("%Y-%m-%d"));
    let source = if spec.price_gpu_hour.is_some() { format!("--price; the others by the {list}") } else { list };
    let prices = Prices {
        gpu_instance_hour: spec.price_gpu_hour.unwrap_or_else(|| known(gpu)),
        system_instance_hour: known(system),
        cluster_hour: known(cluster),
        nat_gateway_hour: known(nat),
        load_balancer_hour: known(balancer),
        filesystem_gb_month: known(filesystem),
        source: format!("{source}; {what}"),
    };
    if prices.gpu_instance_hour > 0.0 {
        let missing = missing(&prices, spec);
        let answer = words(&prices, spec);
        let answered = if missing.is_empty() { question.ok(answer) } else { question.warn(format!("{answer}; no price of {}", missing.join(", ")), "the sums leave these out") };
        return (answered, prices);
    }
    let why = trouble.map_or_else(|| "the Price List API has none".into(), |error| error.to_string());
    (question.red(Kind::Config, format!("no price of {what}: {why}"), "give it: --price USD, for an hour of one GPU instance as AWS or your contract says"), prices)
}

fn words(prices: &Prices, spec: &Spec) -> String {
    format!("${:.2} an hour for each {} ({})", prices.gpu_instance_hour, spec.instance.type_name, prices.source)
}

fn missing(prices: &Prices, spec: &Spec) -> Vec<&'static str> {
    let balancer = if spec.exposed() { prices.load_balancer_hour } else { f64::INFINITY };
    let all = [
        ("the load balancer", balancer),
        ("the system nodes", prices.system_instance_hour),
        ("the control plane", prices.cluster_hour),
        ("the NAT gateway", prices.nat_gateway_hour),
        ("the file system", prices.filesystem_gb_month),
    ];
    all.into_iter().filter(|(_, usd)| *usd <= 0.0).map(|(what, _)| what).collect()
}

/// Not asked where there is none.
async fn balancer(aws: &Aws, spec: &Spec) -> Result<Option<f64>, ServiceError> {
    if !spec.exposed() {
        return Ok(None);
    }
    first(aws, "AWSELB", &[("productFamily", "Load Balancer-Network")], |offer| offer.usage.ends_with("LoadBalancerUsage")).await
}

async fn instance(aws: &Aws, type_name: &str) -> Result<Option<f64>, ServiceError> {
    let attributes = [("instanceType", type_name), ("operatingSystem", "Linux"), ("tenancy", "Shared"), ("preInstalledSw", "NA"), ("capacitystatus", "Used")];
    first(aws, "AmazonEC2", &attributes, |offer| offer.usage.contains("BoxUsage")).await
}

/// The price of the first offer of the region that is meant.
async fn first(aws: &Aws, service: &str, attributes: &[(&str, &str)], is_meant: impl Fn(&Offer) -> bool) -> Result<Option<f64>, ServiceError> {
    let attributes = [attributes, &[("regionCode", aws.region.as_str())]].concat();
    Ok(pricing::offers(aws, service, &attributes).await?.into_iter().find(|offer| is_meant(offer)).map(|offer| offer.usd))
}

/// How the list words throughput is assumed: a number that begins the attribute. PERSISTENT_1 has other throughputs, so that the number tells them apart.
fn stores_at(offer: &Offer, throughput: u32) -> bool {
    let number = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>().parse() == Ok(throughput);
    offer.unit.starts_with("GB-Mo") && offer.attributes.get("throughputCapacity").and_then(|value| value.as_str()).is_some_and(number)
}
