//! The CloudFormation templates with sample values.

use nemo::render::Rendered;
use nemo::render::cloudformation::{self, Interface, ZoneShare};

/// Every stack of a deployment.
pub(crate) fn stacks() -> Vec<Rendered> {
    let zone = |name: &str, id: &str, private: &str, public: &str| ZoneShare { name: name.into(), id: id.into(), private_cidr: private.into(), public_cidr: public.into() };
    let interface = |card, device, kind| Interface { card, device, kind };
    let mut interfaces = vec![interface(0, 0, "interface"), interface(0, 1, "efa-only")];
    interfaces.extend((1..16).map(|card| interface(card, 0, "efa-only")));
    let zones = vec![zone("us-east-2b", "use2-az2", "10.180.0.0/18", "10.180.192.0/22"), zone("us-east-2a", "use2-az1", "10.180.64.0/18", "10.180.196.0/22")];
    let groups = vec!["sg-0000000000000cccc".into(), "sg-0000000000000ffff".into(), "sg-0000000000000eeee".into()];
    vec![
        cloudformation::network(&cloudformation::Network { name: "nemo".into(), cidr: "10.180.0.0/16".into(), zones }).unwrap(),
        cloudformation::roles().unwrap(),
        cloudformation::nat(&cloudformation::Nat { name: "nemo".into(), subnet: "subnet-0000000000000aaaa".into(), table: "rtb-0000000000000bbbb".into() }).unwrap(),
        cloudformation::gpu_nodes(&cloudformation::GpuNodes {
            name: "nemo".into(),
            instance_type: "p5en.48xlarge".into(),
            disk_gib: 500,
            groups,
            interfaces,
            tag: nemo::aws::TAG_DEPLOYMENT,
        })
        .unwrap(),
    ]
}
