//! Which regions a core keeps rosters of, and which it watches elsewhere.

use clap::Args;
use presence_model::id::RegionId;
use presence_model::limits::CURSOR_REGIONS_MAX;
use presence_runtime::config::{Checks, Kind, Loader, Setting};
use presence_runtime::rpc;

use super::Configuration;

/// Settings about regions.
pub(super) const REGION_SETTINGS: [Setting; 3] = [
    Setting::new("region", Kind::Text, "\"eu-west\""),
    Setting::new("edge_regions", Kind::List(&Kind::Text), "[\"us-east\", \"ap-south\"]"),
    Setting::new("peer", Kind::List(&Kind::Text), "[\"us-east=https://core.us-east.example:4701\"]"),
];

/// Flags about regions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct RegionFlags {
    /// The region whose rosters this core keeps (local)
    #[arg(long, value_name = "NAME")]
    pub region: Option<String>,
    /// Further regions whose edges link to this core, which keeps the rosters of each
    #[arg(long, value_name = "NAME[,NAME…]")]
    pub edge_regions: Option<String>,
    /// A region that has cores of its own, and where they are: their rooms are shown here too. Say it at both ends;
    /// give it again for each further region
    #[arg(long, value_name = "REGION=URL[,URL…]")]
    pub peer: Vec<String>,
    /// Who signs the certificates of cores of other regions, PEM (whom this system trusts)
    #[arg(long, value_name = "FILE")]
    pub core_ca: Option<String>,
    /// The certificate to show to them, PEM: it names this core's region in their table of peers
    #[arg(long, value_name = "FILE")]
    pub core_cert: Option<String>,
    /// The key of that certificate, PEM
    #[arg(long, value_name = "FILE")]
    pub core_key: Option<String>,
}

impl RegionFlags {
    /// Hands the flags to a loader.
    pub(super) fn onto<'a>(&self, loader: Loader<'a>) -> Loader<'a> {
        let peers = (!self.peer.is_empty()).then(|| self.peer.join(","));
        loader
            .flag("region", "--region", self.region.as_deref())
            .flag("edge_regions", "--edge-regions", self.edge_regions.as_deref())
            .flag("peer", "--peer", peers)
            .flag("core_tls.ca_file", "--core-ca", self.core_ca.as_deref())
            .flag("core_tls.cert_file", "--core-cert", self.core_cert.as_deref())
            .flag("core_tls.key_file", "--core-key", self.core_key.as_deref())
    }
}

/// A region that has cores of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerSettings {
    /// Which.
    pub region: RegionId,
    /// `http://host:port` of each, or `https` for TLS; at least one. All are equal.
    pub cores: Vec<String>,
}

/// Regions as a core is to know them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Regions {
    /// Its own.
    pub own: RegionId,
    /// Further ones whose edges link here.
    pub of_edges: Vec<RegionId>,
    /// Those that have cores of their own.
    pub peers: Vec<PeerSettings>,
}

impl Regions {
    /// One region that knows no other.
    #[must_use]
    pub fn single(own: RegionId) -> Self {
        Self { own, of_edges: Vec::new(), peers: Vec::new() }
    }

    /// Whether the rosters of a region are kept here.
    #[must_use]
    pub fn keeps(&self, region: &RegionId) -> bool {
        self.own == *region || self.of_edges.contains(region)
    }
}

impl Configuration {
    /// Its regions; none if something is wrong with them.
    pub(super) fn regions(&self, checks: &mut Checks<'_, '_>) -> Option<Regions> {
        let own = checks.value("region", &self.region, RegionId::new(&self.region));
        let mut of_edges = Vec::new();
        let mut is_good = true;
        for name in &self.edge_regions {
            let Some(region) = checks.value("edge_regions", name, RegionId::new(name)) else {
                is_good = false;
                continue;
            };
            if own.as_ref() == Some(&region) || of_edges.contains(&region) {
                let rule = "is named twice: give region and edge_regions each region once".to_owned();
                checks.wrong("edge_regions", format!("{name:?}"), rule);
                is_good = false;
            }
            of_edges.push(region);
        }
        let peers = self.peers_of(checks, |region| own.as_ref() == Some(region) || of_edges.contains(region));
        let beside = of_edges.len() + peers.as_ref().map_or(0, Vec::len);
        if beside >= CURSOR_REGIONS_MAX {
            let rule = format!("are, with region, more than {CURSOR_REGIONS_MAX}, which a cursor can name");
            let path = if of_edges.len() >= CURSOR_REGIONS_MAX { "edge_regions" } else { "peer" };
            checks.wrong(path, format!("{beside} regions beside the own one"), rule);
            is_good = false;
        }
        own.filter(|_| is_good).zip(peers).map(|(own, peers)| Regions { own, of_edges, peers })
    }

    /// Regions that have cores of their own. An entry without a region is a further core of the one before.
    fn peers_of(
        &self,
        checks: &mut Checks<'_, '_>,
        is_kept_here: impl Fn(&RegionId) -> bool,
    ) -> Option<Vec<PeerSettings>> {
        let mut peers: Vec<PeerSettings> = Vec::new();
        let mut is_good = true;
        for entry in &self.peer {
            let wrong = match (split(entry), peers.last_mut()) {
                ((_, url), _) if rpc::target(url).is_none() => {
                    "must be REGION=http://host:port or REGION=https://host:port, further cores of the region behind it"
                }
                ((None, _), None) => "must say whose core that is: REGION=URL",
                ((None, url), Some(last)) => {
                    last.cores.push(url.to_owned());
                    continue;
                }
                ((Some(name), url), _) => {
                    let known = |region: &RegionId| peers.iter().position(|peer| peer.region == *region);
                    match RegionId::new(name) {
                        Err(_) => "does not name a region",
                        Ok(region) if is_kept_here(&region) => {
                            "is a region whose rosters this core keeps itself: name those of others only"
                        }
                        Ok(region) => {
                            match known(&region) {
                                Some(place) => peers[place].cores.push(url.to_owned()),
                                None => peers.push(PeerSettings { region, cores: vec![url.to_owned()] }),
                            }
                            continue;
                        }
                    }
                }
            };
            checks.wrong("peer", format!("{entry:?}"), wrong.to_owned());
            is_good = false;
        }
        is_good.then_some(peers)
    }
}

/// The region of an entry, if it names one, and its URL.
fn split(entry: &str) -> (Option<&str>, &str) {
    match entry.split_once('=') {
        Some((region, url)) if !region.contains("://") => (Some(region), url),
        Some(_) | None => (None, entry),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Flags;
    use super::*;

    fn mistakes(regions: &str) -> Vec<String> {
        let regions = RegionFlags { edge_regions: Some(regions.into()), ..RegionFlags::default() };
        told("edge_regions", regions)
    }

    /// What is wrong with a setting of a core of region `eu`.
    fn told(path: &str, regions: RegionFlags) -> Vec<String> {
        let regions = RegionFlags { region: Some("eu".into()), ..regions };
        let flags = Flags { regions, jwks: Some("/nowhere".into()), ..Flags::default() };
        let all = flags.check(std::iter::empty()).unwrap_err().to_string();
        all.lines().filter(|line| line.starts_with(path)).map(ToOwned::to_owned).collect()
    }

    #[test]
    fn regions_are_named_once_and_are_as_many_as_a_cursor_can_name() {
        let so_many = |count: usize| (0..count).map(|n| format!("r{n}")).collect::<Vec<_>>().join(",");
        for good in ["us", "us,ap", &so_many(CURSOR_REGIONS_MAX - 1)] {
            assert_eq!(mistakes(good), Vec::<String>::new(), "{good}");
        }
        for bad in ["eu", "us,us", &so_many(CURSOR_REGIONS_MAX), &"x".repeat(300)] {
            assert_eq!(mistakes(bad).len(), 1, "{bad}");
        }
    }

    #[test]
    fn peers_are_regions_kept_elsewhere_with_the_addresses_of_their_cores() {
        let mistakes = |peers: &[&str]| {
            let peer = peers.iter().map(|peer| (*peer).to_owned()).collect();
            let edge_regions = Some("ap".to_owned());
            told("peer", RegionFlags { peer, edge_regions, ..RegionFlags::default() }).len()
        };
        for good in [
            &["us=http://a:1"][..],
            &["us=http://a:1,http://b:2", "sa=http://c:3"],
            &["us=http://a:1", "us=http://b:2"],
        ] {
            assert_eq!(mistakes(good), 0, "{good:?}");
        }
        for bad in
            ["eu=http://a:1", "ap=http://a:1", "us", "http://a:1", "=http://a:1", "us=a:1", "us=ftp://a:1"]
        {
            assert_eq!(mistakes(&[bad]), 1, "{bad}");
        }
        let so_many: Vec<String> = (1..=CURSOR_REGIONS_MAX).map(|n| format!("r{n}=http://a:{n}")).collect();
        let so_many: Vec<&str> = so_many.iter().map(String::as_str).collect();
        // With the own region and that of edges there are two already.
        for (count, mistaken) in [(61, 0), (62, 0), (63, 1)] {
            assert_eq!(mistakes(&so_many[..count]), mistaken, "{count}");
        }
    }
}
