//! The Price List API: what things cost on demand.

use aws_sdk_pricing::Client;
use aws_sdk_pricing::config::Region;
use aws_sdk_pricing::types::{Filter, FilterType};
use serde_json::Value;

use super::{Answer, Aws};
use crate::error::ServiceError;

/// The API is served in few regions; its answers are about all of them.
const HOME: &str = "us-east-1";

/// One product with its price on demand.
#[derive(Debug, Clone, PartialEq)]
pub struct Offer {
    /// `USE2-NatGateway-Hours`: region prefix, then what is counted.
    pub usage: String,
    /// `throughputCapacity` and the like.
    pub attributes: serde_json::Map<String, Value>,
    /// `Hrs`, `GB-Mo`.
    pub unit: String,
    pub usd: f64,
}

/// Products of a service whose attributes have these values.
pub async fn offers(aws: &Aws, service: &str, attributes: &[(&str, &str)]) -> Result<Vec<Offer>, ServiceError> {
    let config = aws_sdk_pricing::config::Builder::from(&aws.config).region(Region::from_static(HOME)).build();
    let filters = attributes.iter().filter_map(|(field, value)| Filter::builder().r#type(FilterType::TermMatch).field(*field).value(*value).build().ok()).collect();
    let call = Client::from_conf(config).get_products().service_code(service).format_version("aws_v1").set_filters(Some(filters));
    let mut pages = call.into_paginator().send();
    let mut found = Vec::new();
    while let Some(page) = pages.next().await {
        let texts = page.answer("pricing", "GetProducts")?.price_list.unwrap_or_default();
        found.extend(texts.iter().filter_map(|text| serde_json::from_str::<Value>(text).ok()).flat_map(|product| read(&product)));
    }
    Ok(found)
}

/// The offers of one product; a price of 0 is one that is charged elsewhere.
fn read(product: &Value) -> Vec<Offer> {
    let attributes = product["product"]["attributes"].as_object().cloned().unwrap_or_default();
    let usage = attributes.get("usagetype").and_then(Value::as_str).unwrap_or_default().to_owned();
    let terms = product["terms"]["OnDemand"].as_object().into_iter().flat_map(|terms| terms.values());
    let dimensions = terms.filter_map(|term| term["priceDimensions"].as_object()).flat_map(|dimensions| dimensions.values());
    dimensions
        .filter_map(|dimension| {
            let usd: f64 = dimension["pricePerUnit"]["USD"].as_str()?.parse().ok()?;
            let unit = dimension["unit"].as_str()?.to_owned();
            (usd > 0.0).then(|| Offer { usage: usage.clone(), attributes: attributes.clone(), unit, usd })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_of_the_list_is_read_and_free_ones_are_left_out() {
        let product = |usd: &str| {
            serde_json::json!({
                "product": {"attributes": {"usagetype": "USE2-BoxUsage:p5en.48xlarge", "instanceType": "p5en.48xlarge"}},
                "terms": {"OnDemand": {"A.B": {"priceDimensions": {"A.B.C": {"unit": "Hrs", "pricePerUnit": {"USD": usd}}}}}},
            })
        };
        let offers = read(&product("63.2960000000"));
        assert_eq!((offers[0].usage.as_str(), offers[0].unit.as_str(), offers[0].usd), ("USE2-BoxUsage:p5en.48xlarge", "Hrs", 63.296));
        assert!(read(&product("0.0000000000")).is_empty());
        assert!(read(&serde_json::json!({"product": {}})).is_empty());
    }
}
