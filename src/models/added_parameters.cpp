#include "models/added_parameters.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

namespace automodel::models {

void AddedParameters::add(tensor::KeyMap& keys, const tensor::KeyMap& parts,
                          const std::vector<ParameterInit>& values) {
  const auto layer_of = [](const tensor::ParameterPart& part) {
    return part.parameter.substr(0, part.parameter.rfind('.'));
  };
  for (const tensor::ParameterPart& part : parts) {
    const auto last = std::find_if(keys.rbegin(), keys.rend(), [&](const auto& known) {
      return layer_of(known) == layer_of(part);
    });
    // A tied head has no entries in the map, so its adapters go to the end.
    keys.insert(last == keys.rend() ? keys.end() : last.base(), part);
  }
  values_.insert(values_.end(), values.begin(), values.end());
}

const ParameterInit* AddedParameters::find(const std::string& parameter) const {
  const auto found = std::ranges::find(values_, parameter, &ParameterInit::parameter);
  return found == values_.end() ? nullptr : &*found;
}

void replace_parts(tensor::KeyMap& keys, const tensor::KeyMap& parts) {
  tensor::KeyMap out;
  std::set<std::string> replaced;
  for (const tensor::ParameterPart& known : keys) {
    const auto is_of_it = [&](const auto& part) { return part.parameter == known.parameter; };
    if (std::none_of(parts.begin(), parts.end(), is_of_it)) {
      out.push_back(known);
    } else if (replaced.insert(known.parameter).second) {
      std::copy_if(parts.begin(), parts.end(), std::back_inserter(out), is_of_it);
    }
  }
  keys = std::move(out);
}

}  // namespace automodel::models
