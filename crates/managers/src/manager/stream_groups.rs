//! Stream groups: instances that share a stream, and so allocate together.

use std::collections::BTreeMap;

use pagewise::{Device, Machine, Stream};

use super::error::{ManagerError, Result};
use super::instance_id::InstanceId;

/// The group of who names none.
pub const DEFAULT_GROUP: &str = "default";

/// Groups by name, each with its stream. A group has a stream of its own, never a default stream,
/// from the moment it has a member; it stays when the last one leaves.
///
/// ```
/// use pagewise_managers::manager::{InstanceId, StreamGroups};
/// use pagewise::{Device, Machine};
///
/// let mut groups = StreamGroups::new(Machine::from(pagewise::sim()?), Device::FIRST);
/// let (a, b) = (InstanceId::unique(), InstanceId::unique());
/// groups.add_instance(a, "solver")?;
/// groups.add_instance(b, "solver")?;
/// assert_eq!(groups.get_stream(a)?, groups.get_stream(b)?);
/// groups.change_group(b, "other")?;
/// assert_ne!(groups.get_stream(a)?, groups.get_stream(b)?);
/// assert_eq!(groups.get_instances_in_group("solver"), [a]);
/// # Ok::<(), pagewise_managers::manager::ManagerError>(())
/// ```
#[derive(Debug)]
pub struct StreamGroups {
    machine: Machine,
    device: Device,
    groups: BTreeMap<String, Group>,
    member_of: BTreeMap<InstanceId, String>,
}

#[derive(Debug)]
struct Group {
    stream: Stream,
    members: Vec<InstanceId>,
}

impl StreamGroups {
    /// No groups yet, on a device.
    pub fn new(machine: impl Into<Machine>, device: Device) -> Self {
        let (groups, member_of) = (BTreeMap::new(), BTreeMap::new());
        Self { machine: machine.into(), device, groups, member_of }
    }

    /// Puts one into a group, which is made with its stream if it is new.
    ///
    /// # Errors
    /// [`ManagerError::AlreadyInGroup`]; what making a stream reports. Nothing has changed then.
    pub fn add_instance(&mut self, instance: InstanceId, group: &str) -> Result<()> {
        if let Some(other) = self.member_of.get(&instance) {
            return Err(ManagerError::AlreadyInGroup(instance, other.clone()));
        }
        self.get_group_stream(group)?;
        self.put(instance, group);
        Ok(())
    }

    fn put(&mut self, instance: InstanceId, name: &str) {
        if let Some(group) = self.groups.get_mut(name) {
            group.members.push(instance);
            self.member_of.insert(instance, name.to_owned());
        }
    }

    /// The name of its group.
    ///
    /// # Errors
    /// [`ManagerError::UnknownInstance`].
    pub fn get_group(&self, instance: InstanceId) -> Result<&str> {
        let name = self.member_of.get(&instance).map(String::as_str);
        name.ok_or(ManagerError::UnknownInstance(instance))
    }

    /// The stream of its group.
    ///
    /// # Errors
    /// [`ManagerError::UnknownInstance`].
    pub fn get_stream(&self, instance: InstanceId) -> Result<Stream> {
        let group = self.groups.get(self.get_group(instance)?);
        group.map(|group| group.stream.clone()).ok_or(ManagerError::UnknownInstance(instance))
    }

    /// The members of a group, in the order in which they came; none if there is no group of that
    /// name.
    #[must_use]
    pub fn get_instances_in_group(&self, group: &str) -> Vec<InstanceId> {
        self.groups.get(group).map(|group| group.members.clone()).unwrap_or_default()
    }

    /// Refuses a name that no group has.
    pub(crate) fn check_group(&self, name: &str) -> Result<()> {
        let known = self.groups.contains_key(name);
        if known { Ok(()) } else { Err(ManagerError::UnknownGroup(name.to_owned())) }
    }

    /// The groups' names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.groups.keys().map(String::as_str)
    }

    /// Moves one to another group. The new group's stream waits for the present work of the old
    /// one, so memory that was used there can be used here.
    ///
    /// # Errors
    /// [`ManagerError::UnknownInstance`]; what making a stream and waiting report. It is in its old
    /// group then.
    pub fn change_group(&mut self, instance: InstanceId, group: &str) -> Result<()> {
        self.change_group_of(&[instance], group)
    }

    /// Moves members of one group to another, all or none.
    pub(crate) fn change_group_of(&mut self, members: &[InstanceId], group: &str) -> Result<()> {
        let Some(&first) = members.first() else { return Ok(()) };
        let old = self.get_stream(first)?;
        if self.get_group(first)? == group {
            return Ok(());
        }
        let is_new = !self.groups.contains_key(group);
        let stream = self.get_group_stream(group)?;
        if let Err(error) = stream.wait_for(&old) {
            if is_new {
                self.groups.remove(group);
            }
            return Err(error.into());
        }
        for &member in members {
            self.remove_instance(member);
            self.put(member, group);
        }
        Ok(())
    }

    /// Takes one out of its group; nothing happens if it is in none.
    pub fn remove_instance(&mut self, instance: InstanceId) {
        let name = self.member_of.remove(&instance);
        if let Some(group) = name.and_then(|name| self.groups.get_mut(&name)) {
            group.members.retain(|&member| member != instance);
        }
    }

    /// The stream of a group, which is made if it is new.
    ///
    /// # Errors
    /// What making a stream reports.
    pub fn get_group_stream(&mut self, group: &str) -> Result<Stream> {
        if let Some(group) = self.groups.get(group) {
            return Ok(group.stream.clone());
        }
        let stream = Stream::new(&self.machine, self.device)?;
        let made = Group { stream: stream.clone(), members: Vec::new() };
        self.groups.insert(group.to_owned(), made);
        Ok(stream)
    }

    /// Gives every group a new stream, which waits for the present work of the old one.
    ///
    /// # Errors
    /// What making streams and waiting report; all groups have their old streams then.
    pub fn reinit_streams(&mut self) -> Result<()> {
        let streams = self.new_streams()?;
        self.set_streams(streams);
        Ok(())
    }

    /// A new stream for each group, in order.
    pub(crate) fn new_streams(&self) -> Result<Vec<Stream>> {
        let make = |group: &Group| {
            let stream = Stream::new(&self.machine, self.device)?;
            stream.wait_for(&group.stream)?;
            Ok(stream)
        };
        self.groups.values().map(make).collect()
    }

    pub(crate) fn set_streams(&mut self, streams: Vec<Stream>) {
        for (group, stream) in self.groups.values_mut().zip(streams) {
            group.stream = stream;
        }
    }

    /// Whether it shares its group with another: never in the default group.
    ///
    /// # Errors
    /// [`ManagerError::UnknownInstance`].
    pub fn is_grouped(&self, instance: InstanceId) -> Result<bool> {
        let name = self.get_group(instance)?;
        let members = self.groups.get(name).map_or(0, |group| group.members.len());
        Ok(name != DEFAULT_GROUP && members > 1)
    }
}
