"""Which weight lies where on a mesh, found from the model's layers.

A dense layer that widens is divided by its columns and one that narrows by its rows (Shoeybi et al. 2019, arXiv:1909.08053): a pair of them
sends one sum, that of the second's outputs. Attention is divided by heads and an embedding table by rows. What does not divide so, such as
a convolution, is held in parts and gathered for use, which divides its memory and that of its optimizer, not its work.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import prod

import keras

from pipelines.base.errors import ConfigError
from pipelines.config.train_settings import Parallel
from pipelines.data.cache import readable
from pipelines.machine.mesh import DATA, MODEL, Axes, Mesh

ATTENTION = (keras.layers.MultiHeadAttention, keras.layers.GroupQueryAttention)
PARTS = {"rows": lambda rank: 0, "columns": lambda rank: rank - 1, "heads": lambda rank: 1}  # layout -> axis that it divides


@dataclass(frozen=True)
class Layout:
    """How a variable lies on the mesh.

    Attributes:
        axes: of the variable itself.
        state: of what the optimizer keeps of it, and of its average.
        gathered: it is made whole for use.
    """

    path: str
    shape: tuple[int, ...]
    how: str
    axes: Axes
    state: Axes
    gathered: bool = False

    @property
    def used(self) -> Axes:
        """Its axes in the forward pass."""
        return (None,) * len(self.shape) if self.gathered else self.axes


@dataclass(frozen=True)
class Layouts:
    """Of all variables of a model, by their ids."""

    mesh: Mesh
    by_id: Mapping[int, Layout]

    def of(self, variable: keras.Variable, weight: keras.Variable | None = None) -> Layout:
        """Of a variable of the model, or of the state of one: of `weight`, or else of that whose path is in its name, where it has its
        shape, as what the optimizer keeps has. Anything else is whole on each device."""
        if id(variable) in self.by_id:
            return self.by_id[id(variable)]
        path, shape = variable.path.replace("/", "_"), tuple(variable.shape)
        named = [one for one in self.by_id.values() if one.shape == shape and one.path.replace("/", "_") in path]
        alike = [self.by_id[id(weight)]] if weight is not None else named
        axes = max(alike, key=lambda one: len(one.path)).state if alike else (None,) * len(shape)
        return Layout(variable.path, shape, "state", axes, axes)

    def held(self, axes_of: str = "axes") -> tuple[int, int]:
        """Elements of all variables, and of those that one device holds; with "state" as the optimizer's lie."""
        sizes = [(prod(one.shape), prod(map(self.mesh.size, getattr(one, axes_of)))) for one in self.by_id.values()]
        return sum(size for size, _ in sizes), sum(size // parts for size, parts in sizes)

    def described(self) -> list[str]:
        """Lines for a person: the mesh, what a device holds, and the layouts of weights, equal ones of numbered layers together."""
        (every, own), (_, state) = self.held(), self.held("state")
        alike: dict[tuple[str, tuple[int, ...]], list[str]] = {}
        for one in self.by_id.values():
            if len(one.shape) > 1:
                alike.setdefault((one.how, one.shape), []).append(one.path)
        lines = [f"a mesh of {self.mesh.data} (data) x {self.mesh.model} (model) devices: each holds {readable(4 * own)} of "
                 f"{readable(4 * every)} of weights, and {readable(4 * state)} of each thing that the optimizer keeps of them"]
        for (how, shape), paths in alike.items():
            others = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
            lines.append(f"  {how:<8} {paths[0]} {list(shape)}{others}")
        return lines


def lay_out(model: keras.Model, parallel: Parallel, mesh: Mesh) -> Layouts:
    """The layouts by the rules and by train.parallel.layouts.

    Raises:
        ConfigError: no weight can be divided, or a layout names no weight or does not divide it.
    """
    wanted = dict(parallel.layouts)
    found, matched = dict[int, Layout](), set[str]()
    for variable, rule in _rules(model, mesh.model):
        pattern = next((one for one in wanted if fnmatchcase(variable.path, one)), None)
        if pattern is not None:
            matched.add(pattern)
        how = rule if pattern is None else wanted[pattern]
        axis = _axis(how, tuple(variable.shape), mesh.model)
        if axis is None and how not in ("whole", "gathered"):
            raise ConfigError(f"train.parallel.layouts: {pattern}: {how}: {variable.path} {list(variable.shape)} does not divide so into "
                              f"{mesh.model} parts; choose whole or gathered, or another train.parallel.model")
        axes = tuple(MODEL if at == axis else None for at in range(len(variable.shape)))
        state = _over_data(axes, tuple(variable.shape), mesh) if parallel.state == "divided" else axes
        found[id(variable)] = Layout(variable.path, tuple(variable.shape), "whole" if axis is None else how, axes, state, how == "gathered")
    if unknown := sorted(set(wanted) - matched):
        raise ConfigError(f"train.parallel.layouts: {unknown[0]}: the model has no such weight; without it `quartet check` lists all")
    if mesh.model > 1 and not any(MODEL in one.axes for one in found.values()):
        largest = sorted(found.values(), key=lambda one: -prod(one.shape))[:4]
        raise ConfigError(f"train.parallel.model: no weight divides into {mesh.model} parts; the largest are "
                          + ", ".join(f"{one.path} {list(one.shape)}" for one in largest))
    return Layouts(mesh, found)


def _rules(model: keras.Model, parts: int) -> Iterator[tuple[keras.Variable, str]]:
    """Each variable once, with its layout by rule."""
    layers = list(model._flatten_layers())
    own: dict[int, str] = {}  # what a layer says of the kernels of its parts
    for layer in layers:
        for name, how in getattr(layer, "mesh_layouts", {}).items():
            part = getattr(layer, name)
            own.update({id(one): how for one in (part if isinstance(part, list) else [part])})
        if isinstance(layer, ATTENTION):
            own.update({id(part): "heads" for part in (layer._query_dense, layer._key_dense, layer._value_dense)})
            own[id(layer._output_dense)] = "rows"
    seen = set[int]()
    for layer in layers:
        for variable in (*layer._trainable_variables, *layer._non_trainable_variables):
            if id(variable) in seen:
                continue
            seen.add(id(variable))
            shape = tuple(variable.shape)
            how = "whole" if len(shape) < 2 else own.get(id(layer)) or _rule(layer, shape)
            yield variable, how if how == "whole" or _axis(how, shape, parts) is not None else "gathered"


def _rule(layer: keras.layers.Layer, shape: tuple[int, ...]) -> str:
    if isinstance(layer, keras.layers.Embedding):
        return "rows"
    if isinstance(layer, keras.layers.Dense):
        return "columns" if shape[1] > shape[0] else "rows"
    return "gathered"


def _axis(how: str, shape: tuple[int, ...], parts: int) -> int | None:
    """The axis that a layout divides; None: it divides none, or not evenly."""
    if how == "gathered":  # the last of the largest
        return max((at for at, size in enumerate(shape) if size % parts == 0), key=lambda at: (shape[at], at), default=None)
    if how == "whole" or (how == "heads" and len(shape) < 3) or not shape:
        return None
    axis = PARTS[how](len(shape))
    return axis if shape[axis] % parts == 0 else None


def _over_data(axes: Axes, shape: tuple[int, ...], mesh: Mesh) -> Axes:
    """The axes of a weight with its first free one divided over the data axis, if one divides."""
    free = next((at for at, (axis, size) in enumerate(zip(axes, shape)) if axis is None and size % mesh.data == 0), None)
    return tuple(DATA if at == free else axis for at, axis in enumerate(axes))
