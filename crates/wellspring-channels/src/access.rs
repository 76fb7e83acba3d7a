//! Access to a bot: the configuration, and what operators have allowed since.

use serde::{Deserialize, Serialize};
use wellspring_core::Millis;
use wellspring_engine::{Control, ControlError, Documents, Permission, Principal};
use wellspring_log::Expected;
use wellspring_log::document::segment;

use crate::incoming::Incoming;
use crate::instance::Instance;

/// Characters of a pairing code: letters and digits, without similar-looking ones.
const CODE_ALPHABET: &[u8] = b"ABCDEFGHJKMNPQRSTUVWXYZ23456789";

/// Length of a code: 31^8 codes cannot be guessed by trying.
const CODE_CHARS: usize = 8;

/// Maximum number of people who wait for an operator. Beyond that no codes are given, so that
/// strangers cannot fill the store.
const PAIRINGS_MAX: usize = 200;

/// A person who has asked to use a bot.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Pairing {
    /// The code that they were given.
    pub code: Box<str>,
    /// The network's id of the person.
    pub user: Box<str>,
    /// Their name there.
    pub name: Box<str>,
    /// When they asked.
    pub at: Millis,
}

/// Lets an operator manage the people of a bot.
#[derive(Clone, Debug)]
pub struct People {
    documents: Documents,
}

impl People {
    /// The people of the bot `name`. Requires [`Permission::Run`] of the control.
    ///
    /// # Errors
    ///
    /// If the principal does not have the permission.
    pub fn of(control: &Control, name: &str) -> Result<Self, ControlError> {
        Ok(Self { documents: control.documents(&format!("channel:{name}"))? })
    }

    /// The people who wait for approval.
    ///
    /// # Errors
    ///
    /// If the store fails.
    pub async fn waiting(&self) -> Result<Vec<Pairing>, ControlError> {
        let documents = self.documents.list("pair/").await?;
        let read = |text: &str| serde_json::from_str(text).ok();
        Ok(documents.iter().filter_map(|document| read(&document.text)).collect())
    }

    /// The ids of the people and chats that were allowed.
    ///
    /// # Errors
    ///
    /// If the store fails.
    pub async fn allowed(&self) -> Result<Vec<Box<str>>, ControlError> {
        let documents = self.documents.list("allow/").await?;
        Ok(documents.into_iter().map(|document| document.text).collect())
    }

    /// Allows the person with this code; `None` if the code is unknown.
    ///
    /// # Errors
    ///
    /// If the store fails.
    pub async fn pair(&self, code: &str) -> Result<Option<Pairing>, ControlError> {
        let waiting = self.waiting().await?;
        let found = waiting.into_iter().find(|it| it.code.eq_ignore_ascii_case(code.trim()));
        if let Some(pairing) = &found {
            self.allow(&pairing.user).await?;
            let name = format!("pair/{}", segment(&pairing.user));
            self.documents.put(&name, None, Expected::Anything).await?;
        }
        Ok(found)
    }

    /// Allows a person or a chat by the network's id.
    ///
    /// # Errors
    ///
    /// If the store fails.
    pub async fn allow(&self, id: &str) -> Result<(), ControlError> {
        let name = format!("allow/{}", segment(id));
        self.documents.put(&name, Some(id), Expected::Anything).await?;
        Ok(())
    }

    /// Revokes what [`allow`](Self::allow) granted; `false` if there was nothing to revoke.
    ///
    /// # Errors
    ///
    /// If the store fails.
    pub async fn forbid(&self, id: &str) -> Result<bool, ControlError> {
        let name = format!("allow/{}", segment(id));
        let known = self.documents.get(&name).await?.is_some();
        self.documents.put(&name, None, Expected::Anything).await?;
        Ok(known)
    }
}

impl Instance {
    fn people(&self) -> People {
        People { documents: self.inner.documents.clone() }
    }

    /// Whether a person may use the bot in this chat.
    pub(crate) async fn may_use(&self, incoming: &Incoming) -> Result<bool, ControlError> {
        let access = &self.inner.config.access;
        let room = self.capabilities().room(&incoming.chat);
        if access.everyone
            || access.users.contains(&incoming.user.id)
            || access.chats.iter().any(|chat| **chat == *room)
        {
            return Ok(true);
        }
        for id in [&*incoming.user.id, room] {
            if self.inner.documents.get(&format!("allow/{}", segment(id))).await?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The code for a person who may not use the bot yet; repeated calls return the same code.
    /// `None` if too many people wait, or if the system has no random numbers.
    pub(crate) async fn pairing_code(
        &self,
        incoming: &Incoming,
    ) -> Result<Option<Box<str>>, ControlError> {
        let name = format!("pair/{}", segment(&incoming.user.id));
        if let Some(document) = self.inner.documents.get(&name).await? {
            return Ok(serde_json::from_str::<Pairing>(&document.text).ok().map(|it| it.code));
        }
        if self.people().waiting().await?.len() >= PAIRINGS_MAX {
            return Ok(None);
        }
        let Some(code) = new_code() else { return Ok(None) };
        let (user, at) = (incoming.user.clone(), self.now());
        let name_shown = user.name.chars().take(100).collect::<String>().into();
        let pairing = Pairing { code, user: user.id, name: name_shown, at };
        let text = serde_json::to_string(&pairing).unwrap_or_default();
        self.inner.documents.put(&name, Some(&text), Expected::Absent).await?;
        Ok(Some(pairing.code))
    }

    /// The control for a person of the network.
    pub(crate) fn control_of(&self, user: &str) -> Control {
        let config = &self.inner.config;
        let id = format!("{}:{}:{user}", self.inner.channel.network(), config.name);
        let permissions = [Permission::Run, Permission::Read, Permission::Approve];
        self.inner.runtime.control(Principal::new(&*config.tenant, id, permissions))
    }
}

/// A random code; `None` without random numbers.
fn new_code() -> Option<Box<str>> {
    let mut bytes = [0u8; CODE_CHARS];
    getrandom::fill(&mut bytes).ok()?;
    let letter = |byte: &u8| char::from(CODE_ALPHABET[usize::from(*byte) % CODE_ALPHABET.len()]);
    Some(bytes.iter().map(letter).collect::<String>().into())
}
