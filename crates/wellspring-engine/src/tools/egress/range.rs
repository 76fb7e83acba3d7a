//! Address ranges, and those that are not public.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A range of addresses, such as `10.0.0.0/8`, or a single one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Range {
    first: IpAddr,
    bits: u8,
}

/// A string that is not an address range.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{text:?} is not a range of addresses; expected one such as 10.0.0.0/8")]
pub struct ParseRangeError {
    text: Box<str>,
}

impl Range {
    const fn v4(first: [u8; 4], bits: u8) -> Self {
        let [a, b, c, d] = first;
        Self { first: IpAddr::V4(Ipv4Addr::new(a, b, c, d)), bits }
    }

    const fn v6(first: [u16; 8], bits: u8) -> Self {
        let [a, b, c, d, e, f, g, h] = first;
        Self { first: IpAddr::V6(Ipv6Addr::new(a, b, c, d, e, f, g, h)), bits }
    }

    /// Whether an address is in the range. An IPv6 address is never in an IPv4 range.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.first, address) {
            (IpAddr::V4(first), IpAddr::V4(address)) => {
                let differs = u32::from(first) ^ u32::from(address);
                differs.leading_zeros() >= u32::from(self.bits)
            }
            (IpAddr::V6(first), IpAddr::V6(address)) => {
                let differs = u128::from(first) ^ u128::from(address);
                differs.leading_zeros() >= u32::from(self.bits)
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

impl FromStr for Range {
    type Err = ParseRangeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseRangeError { text: text.chars().take(64).collect::<String>().into() };
        let (first, bits) = match text.split_once('/') {
            Some((first, bits)) => (first, Some(bits)),
            None => (text, None),
        };
        let first: IpAddr = first.parse().map_err(|_| error())?;
        let all = if first.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            Some(bits) => bits.parse().ok().filter(|&bits| bits <= all).ok_or_else(error)?,
            None => all,
        };
        Ok(Self { first, bits })
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.bits)
    }
}

/// Why an address is not public; `None` if it is.
pub(super) fn special(address: IpAddr) -> Option<&'static str> {
    // A NAT64 address stands for the IPv4 address inside it.
    if let (IpAddr::V6(v6), true) = (address, NAT64.contains(address)) {
        let [.., a, b, c, d] = v6.octets();
        return special(IpAddr::V4(Ipv4Addr::new(a, b, c, d)));
    }
    SPECIAL.iter().find(|(range, _)| range.contains(address)).map(|(_, what)| *what)
}

const NAT64: Range = Range::v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96);

/// The special-purpose registries of IANA, less what is globally reachable:
/// <https://www.iana.org/assignments/iana-ipv4-special-registry> and its twin for version 6.
const SPECIAL: [(Range, &str); 31] = [
    (Range::v4([0, 0, 0, 0], 8), "unspecified"),
    (Range::v4([10, 0, 0, 0], 8), "private"),
    (Range::v4([100, 64, 0, 0], 10), "shared by carriers"),
    (Range::v4([127, 0, 0, 0], 8), "loopback"),
    (Range::v4([169, 254, 0, 0], 16), "link-local"),
    (Range::v4([172, 16, 0, 0], 12), "private"),
    (Range::v4([192, 0, 0, 0], 24), "reserved"),
    (Range::v4([192, 0, 2, 0], 24), "for documentation"),
    (Range::v4([192, 88, 99, 0], 24), "a relay"),
    (Range::v4([192, 168, 0, 0], 16), "private"),
    (Range::v4([198, 18, 0, 0], 15), "for measurements"),
    (Range::v4([198, 51, 100, 0], 24), "for documentation"),
    (Range::v4([203, 0, 113, 0], 24), "for documentation"),
    (Range::v4([224, 0, 0, 0], 4), "multicast"),
    (Range::v4([240, 0, 0, 0], 4), "reserved"),
    (Range::v6([0, 0, 0, 0, 0, 0, 0, 0], 128), "unspecified"),
    (Range::v6([0, 0, 0, 0, 0, 0, 0, 1], 128), "loopback"),
    (Range::v6([0, 0, 0, 0, 0, 0, 0, 0], 96), "an embedded IPv4 address"),
    (Range::v6([0, 0, 0, 0, 0, 0xffff, 0, 0], 96), "an embedded IPv4 address"),
    (Range::v6([0, 0, 0, 0, 0xffff, 0, 0, 0], 96), "an embedded IPv4 address"),
    (Range::v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48), "a local translator"),
    (Range::v6([0x100, 0, 0, 0, 0, 0, 0, 0], 64), "discarded"),
    (Range::v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23), "reserved"),
    (Range::v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32), "for documentation"),
    (Range::v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16), "an embedded IPv4 address"),
    (Range::v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20), "for documentation"),
    (Range::v6([0x5f00, 0, 0, 0, 0, 0, 0, 0], 16), "for routing"),
    (Range::v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7), "private"),
    (Range::v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10), "link-local"),
    (Range::v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10), "private"),
    (Range::v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8), "multicast"),
];
