"""The embedded quick start: short requests at a hotel desk, generated from patterns; it shows that all runs, not how good a model is.

1,277 sentences, 8 kinds of request, 12 patterns each: every sentence belongs to the group of its pattern, and splits keep groups
apart, so that a model is evaluated on phrasings that it has not seen.
"""

import random
from itertools import product

KINDS: dict[str, tuple[str, ...]] = {
    "book_room": (
        "i would like a {room} for {nights}", "do you have a {room} free {when}", "can i book a {room} {when}",
        "we need a {room} for {nights}",
        "please reserve a {room} {when}", "is there a {room} left for {nights}", "a {room} for {nights} please", "we want to stay {nights}",
        "i am looking for a {room} {when}", "could you keep a {room} for us {when}", "any vacancy {when} for {nights}",
        "put us down for a {room} {when}"),
    "cancel_booking": (
        "please cancel my {room} {when}", "i have to cancel our stay {when}", "we are not coming {when}",
        "can i call off the booking {when}",
        "our plans have changed so cancel the {room}", "i need to cancel my reservation {when}", "drop our booking for {nights}",
        "how do i cancel the {room} i booked", "we cannot make it {when} please cancel", "take back my reservation of a {room}",
        "i no longer need the {room} {when}", "is it too late to cancel {when}"),
    "breakfast": (
        "when is breakfast served {when}", "is breakfast included with a {room}", "until when can we have breakfast {when}",
        "do you serve {food} for breakfast", "what is there for breakfast {when}", "can we get breakfast in our {room}",
        "is there {food} in the morning", "where do we go for breakfast", "how early does breakfast start {when}",
        "i would like {food} for breakfast {when}", "does the morning buffet have {food}", "we missed breakfast is there still {food}"),
    "complaint": (
        "the {thing} in our {room} does not work", "our {thing} is broken again", "nobody has repaired the {thing} yet",
        "there is something wrong with the {thing}", "the {thing} makes a terrible noise {when}", "i am very unhappy about the {thing}",
        "this {room} is dirty and the {thing} is broken", "why has the {thing} not been fixed", "the {thing} stopped working {when}",
        "our {room} is far too loud {when}", "the {thing} is leaking", "it smells bad near the {thing}"),
    "wifi": (
        "what is the password for the wifi", "how do i get online in my {room}", "the internet is slow {when}",
        "is there wifi in the {room}",
        "my phone cannot find your network", "do i have to pay for internet {when}", "which network should i join",
        "can you tell me the wifi code again", "is the wireless good enough for video calls", "i cannot connect my laptop {when}",
        "does the internet work in every {room}", "how many devices can use the wifi"),
    "taxi": (
        "please call a taxi {when}", "i need a ride to the {place}", "can you get us a cab to the {place}",
        "how much is a taxi to the {place}",
        "we need a car to the {place} {when}", "book a driver to the {place} {when}", "how long does the drive to the {place} take",
        "is there a shuttle to the {place}", "could someone take us to the {place}", "we have to be at the {place} {when}",
        "order a cab for two people {when}", "what is the fastest way to get to the {place}"),
    "checkout": (
        "when do we have to check out", "can i check out late {when}", "i want to settle the bill {when}",
        "please prepare my invoice {when}",
        "we are leaving {when} can we have the bill", "may we keep the {room} until noon", "can i pay for the {room} by card",
        "where do i leave the key {when}", "could you store our bags after checkout", "i would like to pay now",
        "there is a mistake on my bill for {nights}", "send the receipt for {nights} by mail"),
    "towels": (
        "could we have fresh towels {when}", "there are no towels in our {room}", "please bring two more pillows",
        "we need another blanket {when}",
        "the {room} has not been cleaned {when}", "can somebody change the sheets {when}", "may i have more soap and shampoo",
        "we are out of toilet paper", "please tidy up our {room} {when}", "is it possible to get clean linen {when}",
        "send housekeeping to our {room}", "one more towel for the pool please"),
}
SLOTS: dict[str, tuple[str, ...]] = {
    "room": ("room", "double room", "single room", "suite", "family room", "quiet room", "room with a view", "twin room"),
    "nights": ("one night", "two nights", "three nights", "a week", "the weekend", "ten days"),
    "when": ("today", "tomorrow", "tonight", "on friday", "next week", "in the morning", "this evening", "on sunday", "in may"),
    "food": ("eggs", "fresh fruit", "coffee", "pancakes", "something vegan", "tea", "bread without gluten"),
    "thing": ("shower", "heating", "air conditioning", "television", "lamp", "window", "door lock", "fridge", "lift"),
    "place": ("airport", "station", "old town", "museum", "harbour", "concert hall", "beach", "conference centre"),
}
EACH = 200  # sentences of a kind


def sentences() -> tuple[list[str], list[str], list[str]]:
    """(texts, labels, groups), deterministic."""
    texts, labels, groups = [], [], []
    draw = random.Random(7)
    for kind, patterns in KINDS.items():
        of_pattern = [draw.sample(filled, len(filled)) for filled in map(_filled, patterns)]
        turn = 0
        chosen: list[tuple[str, str]] = []
        while len(chosen) < EACH and any(of_pattern):
            pool = of_pattern[turn % len(patterns)]
            if pool:
                chosen.append((pool.pop(), f"{kind} {turn % len(patterns)}"))
            turn += 1
        for text, group in chosen:
            texts.append(text)
            labels.append(kind)
            groups.append(group)
    return texts, labels, groups


def _filled(pattern: str) -> list[str]:
    names = [name for name in SLOTS if f"{{{name}}}" in pattern]
    return [pattern.format(**dict(zip(names, values))) for values in product(*(SLOTS[name] for name in names))]
