//! Source filters (RFC 3376 sections 3.1 and 3.2, RFC 3810 section 4).

use sidecore_wire::groups::GroupAddress;

/// Which sources the list of a filter names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    /// These are listened to.
    Include,
    /// All but these are listened to.
    Exclude,
}

/// From which sources a group is listened to; the list is sorted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Filter<A> {
    pub(super) mode: Mode,
    pub(super) sources: Vec<A>,
}

impl<A: GroupAddress> Filter<A> {
    /// From nobody: not joined at all.
    pub(super) const NOBODY: Self = Self {
        mode: Mode::Include,
        sources: Vec::new(),
    };

    /// From everybody.
    pub(super) const EVERYBODY: Self = Self {
        mode: Mode::Exclude,
        sources: Vec::new(),
    };

    pub(super) fn is_nobody(&self) -> bool {
        self.mode == Mode::Include && self.sources.is_empty()
    }

    /// Whether datagrams of this source pass.
    pub(super) fn admits(&self, source: A) -> bool {
        let named = self.sources.binary_search(&source).is_ok();
        named == (self.mode == Mode::Include)
    }

    /// Adds a source to the list; false if it was there.
    pub(super) fn add(&mut self, source: A) -> bool {
        match self.sources.binary_search(&source) {
            Ok(_) => false,
            Err(at) => {
                self.sources.insert(at, source);
                true
            }
        }
    }

    /// Takes a source off the list; false if it was not there.
    pub(super) fn remove(&mut self, source: A) -> bool {
        let found = self.sources.binary_search(&source);
        found.map(|at| self.sources.remove(at)).is_ok()
    }

    /// What an interface must listen to so that each socket gets what it wants (RFC 3376 section 3.2).
    pub(super) fn merged<'a>(sockets: impl Iterator<Item = &'a Self> + Clone) -> Self
    where
        A: 'a,
    {
        let of = |mode| sockets.clone().filter(move |filter| filter.mode == mode);
        let mut wanted: Vec<A> = of(Mode::Include)
            .flat_map(|filter| filter.sources.iter().copied())
            .collect();
        wanted.sort_unstable();
        wanted.dedup();
        let Some(first) = of(Mode::Exclude).next() else {
            return Self {
                mode: Mode::Include,
                sources: wanted,
            };
        };
        // "the intersection of the source lists of all socket records in EXCLUDE mode, minus those source addresses that appear in any
        // socket record in INCLUDE mode" (RFC 3376 section 3.2)
        let mut unwanted = first.sources.clone();
        unwanted.retain(|source| {
            of(Mode::Exclude).all(|filter| !filter.admits(*source))
                && wanted.binary_search(source).is_err()
        });
        Self {
            mode: Mode::Exclude,
            sources: unwanted,
        }
    }

    /// The sources that are on one of both lists only.
    pub(super) fn difference(&self, other: &Self) -> Vec<A> {
        let only = |one: &Self, two: &Self| {
            let missing = |source: &&A| two.sources.binary_search(source).is_err();
            one.sources.iter().filter(missing).copied().collect()
        };
        let mut all: Vec<A> = only(self, other);
        all.extend(only(other, self));
        all.sort_unstable();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    fn filter(mode: Mode, hosts: &[u8]) -> Filter<Ipv4Addr> {
        let sources = hosts.iter().map(|host| Ipv4Addr::new(10, 0, 0, *host));
        Filter {
            mode,
            sources: sources.collect(),
        }
    }

    /// The example of RFC 3376 section 3.2, and what it says of other mixtures.
    #[test]
    fn rfc_3376_section_3_2_one_filter_for_all_sockets() {
        use Mode::*;
        for (sockets, merged) in [
            (vec![], (Include, vec![])),
            (vec![(Include, vec![1, 2])], (Include, vec![1, 2])),
            (
                vec![(Include, vec![1, 2]), (Include, vec![2, 3])],
                (Include, vec![1, 2, 3]),
            ),
            (
                vec![
                    (Exclude, vec![1, 2, 3, 4]),
                    (Exclude, vec![2, 3, 4, 5]),
                    (Include, vec![4, 5, 6]),
                ],
                (Exclude, vec![2, 3]),
            ),
            (
                vec![(Exclude, vec![1]), (Exclude, vec![])],
                (Exclude, vec![]),
            ),
            (
                vec![(Exclude, vec![1]), (Include, vec![1])],
                (Exclude, vec![]),
            ),
        ] {
            let sockets: Vec<_> = sockets.iter().map(|(m, s)| filter(*m, s)).collect();
            let expected = filter(merged.0, &merged.1);
            assert_eq!(Filter::merged(sockets.iter()), expected, "{sockets:?}");
        }
    }

    #[test]
    fn who_passes() {
        let host = |host| Ipv4Addr::new(10, 0, 0, host);
        let mut only = filter(Mode::Include, &[3]);
        assert!(only.admits(host(3)) && !only.admits(host(4)));
        assert!(only.add(host(4)) && !only.add(host(4)) && only.admits(host(4)));
        let mut but = filter(Mode::Exclude, &[3]);
        assert!(!but.admits(host(3)) && but.admits(host(4)));
        assert!(but.remove(host(3)) && !but.remove(host(3)) && but.admits(host(3)));
        assert!(Filter::<Ipv4Addr>::NOBODY.is_nobody() && !but.is_nobody());
        assert_eq!(
            only.difference(&filter(Mode::Include, &[4, 5])),
            [host(3), host(5)]
        );
    }
}
