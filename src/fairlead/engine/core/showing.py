"""What a policy sees of the controller's state: instances and batches as values, with predicted instants."""

from math import inf

from fairlead.engine.core.capacity import InstanceState
from fairlead.model import Instance
from fairlead.policy.base import Batch
from fairlead.profile import Profile, load_s


def start_s(instance: InstanceState, profile: Profile) -> float:
    """How long an instance is predicted to take to start."""
    declared_s, cut_s = profile.cold_s(instance.node.kind), instance.cut_s
    if instance.flavour.kernel is None or instance.device is None:
        return declared_s + cut_s
    if not instance.load_mb and not instance.starts_executor:
        return cut_s
    device = instance.node.node.devices[instance.device.index]
    return declared_s + load_s(device, instance.load_mb, instance.starts_executor) + cut_s


def predicted_end(instance: InstanceState, profile: Profile) -> float:
    """When the batch of an instance is predicted to finish, by what is believed now; it may be in the past."""
    belief = instance.shape.beliefs[instance.node.kind]
    cold_s = instance.cold_s if instance.is_ready else start_s(instance, profile)
    return instance.start + cold_s + belief.declared_s * belief.correction


def batch_of(instance: InstanceState, profile: Profile, now: float) -> Batch:
    """The batch of an instance."""
    return Batch(
        instance.batch,
        instance.shape.name,
        tuple([task[0] for task in instance.tasks]),
        instance.shape.configuration,
        instance.node.name,
        -1 if instance.device is None else instance.device.index,
        instance.start,
        max(now, predicted_end(instance, profile)),
    )


def shown(instance: InstanceState) -> Instance:
    """An instance as a policy sees it."""
    function = instance.flavour.function
    is_running = instance.batch >= 0
    return Instance(
        id=instance.id,
        function=function.name,
        node=instance.node.name,
        device=-1 if instance.device is None else instance.device.index,
        vcpus=instance.vcpus / 1000,
        vgpus=instance.flavour.vgpus / 1000,
        memory_gb=instance.configuration.memory_gb or function.memory_gb,
        is_ready=instance.is_ready,
        is_idle=instance.is_idle,
        is_replica=instance.is_replica,
        is_draining=instance.is_draining,
        running=len(instance.tasks) if is_running else 0,
        run_start=instance.start + instance.cold_s if is_running and instance.is_ready else inf,
        start_s=inf if instance.ready is None else instance.ready - instance.started,
    )
