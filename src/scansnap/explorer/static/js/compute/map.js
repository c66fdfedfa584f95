// The map of the rates, filled as it is computed by all workers.

import { mapAxis } from "../engine/ratemap.js";
import { declared, workers } from "./engine.js";

/** @import { MapSaid, Setup } from "../messages.js" */
/** @import { Cell } from "../engine/ratemap.js" */

/**
 * Where attention ends up over the rates of a set-up; `filled` gets what is known so far.
 * @param {Setup} setup
 * @param {(map: MapSaid) => void} filled
 * @returns {Promise<MapSaid>}
 */
export async function rateMap(setup, filled) {
  const eta_y = mapAxis(declared, "eta_y"), eta_z = mapAxis(declared, "eta_z");
  /** @type {MapSaid} */
  const map = { eta_y, eta_z, share: eta_y.map(() => eta_z.map(() => null)), failed_step: eta_y.map(() => eta_z.map(() => null)), known: 0 };
  await workers.map(setup, ({ cells }) => {
    for (const { row, column, share, failed_step } of /** @type {Cell[]} */ (cells)) {
      map.share[row][column] = Number.isNaN(share) ? null : share;
      map.failed_step[row][column] = failed_step;
    }
    map.known += cells.length;
    filled(map);
  });
  return map;
}
