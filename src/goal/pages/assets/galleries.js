"use strict";
// Cards of thumbnails; a card's pictures are made when it comes near the window, or for print.
(function () {
  const fill = new Map();
  const nearby = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) load(entry.target);
  }, { rootMargin: "300px" });

  function load(card) {
    const task = fill.get(card);
    if (!task) return;
    fill.delete(card);
    nearby.unobserve(card);
    task();
  }

  function make(tag, className, text) {
    const node = document.createElement(tag);
    if (className) node.className = className;
    if (text !== undefined) node.textContent = text;
    return node;
  }

  function picture([key, caption], thumbnails) {
    const figure = make("figure");
    const frame = make("div", "frame");
    const source = thumbnails[key];
    if (source) {
      const image = make("img");
      image.alt = caption;
      image.onload = () => image.classList.toggle("small", image.naturalWidth <= 32);
      image.src = source;
      frame.append(image);
    }
    figure.title = caption;
    figure.append(frame, make("figcaption", "", caption));
    return figure;
  }

  function cardOf(data, thumbnails) {
    const card = make("article", "card");
    card.append(make("h3", "", data.title), make("div", "soft", data.note));
    for (const [label, pictures] of Object.entries(data.rows)) {
      const row = make("div", "row");
      row.append(make("div", "label", label));
      if (pictures.length) {
        const strip = make("div", "pictures");
        for (let i = 0; i < pictures.length; i++) {
          const blank = make("figure");
          blank.append(make("div", "frame"), make("figcaption", "", "\u00a0"));
          strip.append(blank);
        }
        row.append(strip);
      } else row.append(make("div", "none", "none"));
      card.append(row);
    }
    fill.set(card, () => {
      const strips = card.querySelectorAll(".pictures");
      Object.values(data.rows).filter((row) => row.length).forEach((row, index) =>
        strips[index].replaceChildren(...row.map((item) => picture(item, thumbnails))));
      card.dataset.loaded = "yes";
    });
    nearby.observe(card);
    return card;
  }

  window.showGallery = function (place, content) {
    for (const card of place.children) { fill.delete(card); nearby.unobserve(card); }
    place.replaceChildren(...content.cards.map((card) => cardOf(card, content.thumbnails)));
  };

  window.addEventListener("beforeprint", () => [...fill.keys()].forEach(load));
  for (const place of document.querySelectorAll("[data-gallery]")) {
    const source = document.getElementById(place.dataset.gallery);
    if (source) window.showGallery(place, JSON.parse(source.textContent));
  }
})();
