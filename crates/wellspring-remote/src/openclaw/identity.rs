//! The identity of this device: an Ed25519 key.

use std::fmt;
use std::io::{self, Write as _};
use std::path::Path;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

/// Bytes of the secret seed of the key.
const SEED_BYTES: usize = 32;

/// An Ed25519 key that identifies this device to a gateway. It is redacted in `Debug`.
#[derive(Clone, Eq, PartialEq)]
pub struct DeviceIdentity {
    seed: [u8; SEED_BYTES],
    id: Box<str>,
    public_key: Box<str>,
}

/// An identity that could not be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// The file could not be read or written.
    #[error("failed to read or create the identity {path:?}")]
    File {
        /// The file.
        path: Box<str>,
        /// The cause.
        #[source]
        cause: io::Error,
    },
    /// The file does not hold a key.
    #[error(
        "{path:?} holds no key: expected {SEED_BYTES} bytes in base64url; delete the file to make a new one"
    )]
    NoKey {
        /// The file.
        path: Box<str>,
    },
}

impl DeviceIdentity {
    /// The identity of a secret seed; `None` if the seed is not a valid key.
    #[must_use]
    pub fn from_seed(seed: [u8; SEED_BYTES]) -> Option<Self> {
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).ok()?;
        let public = pair.public_key().as_ref();
        let id =
            Sha256::digest(public).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let public_key = BASE64_URL_SAFE_NO_PAD.encode(public).into();
        Some(Self { seed, id: id.into(), public_key })
    }

    /// Reads the identity from a file. If the file does not exist, it is created with a new
    /// key, readable only by its owner.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or written, or does not hold a key.
    pub fn load_or_create(path: &Path) -> Result<Self, IdentityError> {
        let shown: Box<str> = path.to_string_lossy().into();
        let failed = |cause| IdentityError::File { path: shown.clone(), cause };
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut seed = [0; SEED_BYTES];
                getrandom::fill(&mut seed).map_err(|error| failed(io::Error::other(error)))?;
                let text = BASE64_URL_SAFE_NO_PAD.encode(seed);
                create(path, &text).map_err(failed)?;
                text
            }
            read => read.map_err(failed)?,
        };
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text.trim()).ok();
        let seed = bytes.and_then(|bytes| <[u8; SEED_BYTES]>::try_from(bytes).ok());
        seed.and_then(Self::from_seed).ok_or(IdentityError::NoKey { path: shown })
    }

    /// The device's id: the SHA-256 of the public key, in hexadecimal.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The public key in base64url.
    #[must_use]
    pub fn public_key(&self) -> &str {
        &self.public_key
    }

    /// The signature of a text in base64url; `None` if the key is invalid.
    pub(super) fn sign(&self, text: &str) -> Option<String> {
        let pair = Ed25519KeyPair::from_seed_unchecked(&self.seed).ok()?;
        Some(BASE64_URL_SAFE_NO_PAD.encode(pair.sign(text.as_bytes())))
    }
}

fn create(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)?.write_all(text.as_bytes())
}

impl fmt::Debug for DeviceIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceIdentity").field("id", &self.id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};

    use super::*;

    #[test]
    fn a_signature_is_one_of_the_public_key() {
        let identity = DeviceIdentity::from_seed([7; SEED_BYTES]).unwrap();
        let public = BASE64_URL_SAFE_NO_PAD.decode(identity.public_key()).unwrap();
        let signature = BASE64_URL_SAFE_NO_PAD.decode(identity.sign("v3|x").unwrap()).unwrap();
        UnparsedPublicKey::new(&ED25519, public).verify(b"v3|x", &signature).unwrap();
        assert_eq!(identity.id().len(), 64);
        assert_eq!(
            format!("{identity:?}"),
            format!("DeviceIdentity {{ id: {:?}, .. }}", identity.id())
        );
    }
}
